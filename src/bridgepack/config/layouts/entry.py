"""An entry of the public layouts: the columns that tell it, and how its rows are read."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bridgepack.config.layouts.contents import TOOL_COLUMNS
from bridgepack.config.layouts.forms import SYSTEM_COLUMNS, Form

TOOLS = TOOL_COLUMNS
#: In a slot's names: any column whose values have the slot's form.
ANY_COLUMN = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """A column of a layout, which data sets give different names."""

    names: tuple[str, ...]  #: possible names, as `plain_name` writes them
    forms: frozenset[Form]  #: its values have one of these
    #: whether each row has it, or at least one row of the data, or no row needs it
    needs: Literal["always", "sometimes", "optional"] = "always"
    is_ignored: bool = False  #: what it holds stands in another column, too


def slot(*names: str, form: Form | tuple[Form, ...] = Form.TEXT, **how: Any) -> Slot:
    """Return a slot that each row has, unless `needs` says otherwise."""
    return Slot(names=names, forms=frozenset((form,) if isinstance(form, Form) else form), **how)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSet:
    """A public data set, or a tool, whose rows have a layout: another name of it."""

    name: str  #: for `--layout`
    title: str
    url: str  #: page that describes it
    marks: tuple[str, ...] = ()  #: columns that tell it
    ignores: tuple[str, ...] = ()  #: columns with text that is known to be no content, where its marks are


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicLayout:
    """A layout of public data sets, under the name of its shape."""

    name: str  #: for `--layout`
    title: str
    url: str  #: page that describes it
    slots: Mapping[str, Slot]  #: name in `layout` -> the column that it stands for
    #: fields of a `Layout` with the slots as columns; what names a slot without a column is left out. None: refused
    layout: Mapping[str, Any] | None
    refusal: str = ""  #: why its rows are not read, and what to do
    marks: tuple[str, ...] = ()  #: columns that tell it from layouts that read the same
    data_sets: tuple[DataSet, ...] = ()  #: data sets with it
    ignores: tuple[str, ...] = ()  #: columns with text that is known to be no content
    before: tuple[str, ...] = ()  #: layouts that are more general, where both read all; `*` for all others
    is_alone: bool = False  #: a row has no text but in its slots
    covers_all: bool = False  #: its slots say what the rows are, whatever else they have
    is_detected: bool = True  #: rows tell it; else only its name chooses it

    @property
    def all_names(self) -> tuple[str, ...]:
        """Its name, and those of its data sets."""
        return (self.name, *(data_set.name for data_set in self.data_sets))

    def ignored_in(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the columns with text that is no content, also of the data sets that plain names of columns tell."""
        data_sets = (data_set for data_set in self.data_sets if data_set.marks and {*data_set.marks} <= {*columns})
        return (*self.ignores, *(name for data_set in data_sets for name in data_set.ignores))

    @property
    def all_slots(self) -> Mapping[str, Slot]:
        """The slots, and for conversations those that all have."""
        is_chat = self.layout is not None and self.layout["kind"] == "chat"
        return {**(_OF_CHATS if is_chat else {}), **self.slots}


#: Slots that every conversation can have; `made` reads them.
_OF_CHATS: Mapping[str, Slot] = {
    "system": slot(*SYSTEM_COLUMNS, form=(Form.TEXT, Form.PARTS), needs="optional"),
    "tools": slot(*TOOLS, form=Form.SCHEMAS, needs="optional"),
    "switch": slot("enable_thinking", "reasoning", "thinking", "think", form=Form.SWITCH, needs="optional"),
    "variables": slot("chat_template_kwargs", form=Form.VARIABLES, needs="optional"),
}
