"""How many rounds a test makes that shows more the more it makes: few each time, all under the profile ``long``."""

import os

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"


def rounds(every, few):
    """The first ``few`` of these rounds, or all of them."""
    return every if IS_LONG else every[:few]
