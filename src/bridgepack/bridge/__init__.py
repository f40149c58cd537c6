"""Recipes, saved configs and ConfigContainers of Megatron-Bridge as the settings that rules judge."""
