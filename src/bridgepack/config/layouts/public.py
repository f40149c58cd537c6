"""All public layouts; of those that read the same, the one with most marks is named, of these the first."""

from bridgepack.config.layouts.conversations import CONVERSATIONS, SPLICED
from bridgepack.config.layouts.entry import PublicLayout
from bridgepack.config.layouts.pairs import DOCUMENTS, PAIRS, TOKENS
from bridgepack.config.layouts.preferences import CHOSEN_ANSWERS, JUDGED
from bridgepack.config.layouts.refused import REFUSED

PUBLIC_LAYOUTS: tuple[PublicLayout, ...] = (
    *PAIRS,
    *SPLICED,
    *CONVERSATIONS,
    DOCUMENTS,
    TOKENS,
    *JUDGED,
    *REFUSED,
    *CHOSEN_ANSWERS,
)
#: Those that rows tell.
DETECTED_LAYOUTS = tuple(entry for entry in PUBLIC_LAYOUTS if entry.is_detected)
