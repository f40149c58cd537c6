"""The tests that must notice a fault of each room, the likeliest first."""

from pathlib import Path

PROJECT = Path(__file__).parents[2]

ROOMS = {
    "mixture": ("unit/data/test_mixture.py", "property/test_mixture.py"),
    "packing": (
        "property/test_packing.py",
        "unit/data/test_balance.py",
        "unit/data/test_pipeline.py",
        "unit/data/test_build.py",
        "unit/data/test_golden_artifact.py",
        "unit/planning/test_balance.py",
    ),
    "replay": (
        "unit/replay",
        "property/test_slicing.py",
        "property/test_replay.py",
        "contract/test_collate.py",
        "contract/test_replay.py",
    ),
    "wiring": ("unit/bridge/test_wiring.py", "unit/bridge"),
    "layouts": (
        "unit/data/test_read_layouts.py",
        "unit/config/test_layouts.py",
        "unit/data/test_tokenized_rows.py",
        "unit/data/test_unread_variables.py",
        "unit/data/test_lost_content.py",
        "unit/data/test_chat_settings.py",
        "unit/planning/test_public_layouts.py",
    ),
    "rules": ("unit/rules/test_run_cases.py", "unit/rules", "property/test_rules.py"),
    "masks": (
        "unit/data/test_chat_settings.py",
        "unit/data/test_generation_prompts.py",
        "unit/data/test_forms.py",
        "property/test_masks.py",
        "unit/proof/test_masks.py",
    ),
    "proof": ("unit/proof/test_masks_notice.py",),
    "served": ("unit/data/test_served.py", "unit/data/test_served_sample.py", "unit/proof/test_served.py"),
}
