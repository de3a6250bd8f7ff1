"""Prior work, for comparison only: same data, losses, accounting and noise as the library; never on its main path."""

from userdp.baselines.asi_liu2024 import asi_liu2024
from userdp.baselines.coordinate_clipping import coordinate_clipping
from userdp.baselines.friendly_core import friendly_core
from userdp.baselines.group_privacy import group_privacy
from userdp.baselines.kohli_laskowski2021 import kohli_laskowski2021
from userdp.baselines.levy2021 import levy2021
from userdp.baselines.narayanan2022 import narayanan2022
from userdp.baselines.one_row_per_user import one_row_per_user
from userdp.baselines.release import BaselineRelease
from userdp.baselines.user_dpgd import user_dpgd
from userdp.baselines.worst_case_output import worst_case_output

__all__ = [
    "BaselineRelease",
    "asi_liu2024",
    "coordinate_clipping",
    "friendly_core",
    "group_privacy",
    "kohli_laskowski2021",
    "levy2021",
    "narayanan2022",
    "one_row_per_user",
    "user_dpgd",
    "worst_case_output",
]
