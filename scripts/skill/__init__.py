"""What scripts/skill_eval does: tasks for which SKILL.md has to be enough."""
