"""What a request for an answer says beside its prompt."""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Union, cast

from . import troupe_pb2 as pb

Message = Mapping[str, Any]
"""One turn of a conversation: "role", "content", and what else there is of "name" and "reasoning". "tool_calls" of an
assistant are a list of ToolCall (a Completion's `calls`) or of OpenAI's objects; "tool_call_id" and "is_error" are of the
role "tool". All other members reach the model's chat template as they are."""

Prompt = Union[str, Sequence[int], Sequence[Message]]
"""Text, exact token ids, or the messages of a conversation."""

CREDIT_WINDOW = 256
"""Tokens of an answer that may be on their way or unread."""


class Options(TypedDict, total=False):
    """All of them may be absent. docs/protocol.md says what each means and what is refused."""

    model: str
    n: int
    stop: str | Sequence[str]
    deadline: float
    """Seconds from the request's arrival; then it ends with what there is."""
    priority: int
    cache_scope: str
    logprobs: int
    session: str
    session_recompute: bool
    reasoning_budget: int
    tools: Sequence[Mapping[str, Any]]
    """Of messages: functions that the answer may call, {"name", "description", "parameters", "strict"}, or as OpenAI has them."""
    tool_choice: str | Mapping[str, Any]
    """"auto" (as if absent), "none", "required", or of which tool a call is required: {"name": ...}."""
    parallel_tool_calls: bool
    """False: the answer ends behind its first call; absent: true."""
    begins_with: str
    """The text that the answer begins with, behind its reasoning; a part of the answer."""
    json_schema: str
    """What the answer has to be, at most one of these: the text of a JSON Schema, ..."""
    regex: str
    """... a pattern of ECMA-262 that the whole answer matches, ..."""
    choices: Sequence[str]
    """... texts one of which the answer is, ..."""
    grammar: str
    """... a grammar of GBNF whose rule root the answer is, ..."""
    json_object: bool
    """... any JSON object. docs/structured.md says more."""
    compact_json: bool
    """Of json_schema and json_object: without spaces and line breaks."""
    shown_ids: Iterable[int]
    """Control tokens whose text is a part of the answer's."""
    add_special: bool
    parse_special: bool
    """Of text: control tokens written in it become their ids; absent: true. False is for text of strangers."""
    credit: int
    """Tokens that may come before Stream.grant() allows more; absent: they come as fast as they are read."""
    speculation: Mapping[str, Any]
    """type, n_max, n_min, p_min."""
    # Of messages
    add_generation_prompt: bool
    continue_final_message: bool
    variables: Mapping[str, Any]
    """Further variables of the chat template."""
    # How the next token is chosen; what is absent is neutral
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    repeat_last_n: int
    seed: int
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    logit_bias: Mapping[int, float]
    stop_ids: Iterable[int]


@dataclasses.dataclass(slots=True)
class ToolCall:
    """A call of a tool in an answer, which the program runs."""

    id: str = ""
    """By which the result names it: {"role": "tool", "tool_call_id": call.id, "content": ...}."""
    name: str = ""
    arguments: str = ""
    """JSON as the model wrote it: check it."""
    is_complete: bool = False
    """False: the answer was cut in it."""


_OF_SAMPLING = frozenset(field.name for field in pb.Sampling.DESCRIPTOR.fields)
_OF_MESSAGES = frozenset(("add_generation_prompt", "continue_final_message"))
_LISTS = frozenset(("shown_ids", "proposal", "choices"))
_NOT_AS_THEY_ARE = frozenset(("stream", "deadline_ms", "text", "stop", "tool_choice", "called_tool")) | _LISTS
_CHOICES = {"auto": pb.TOOL_CHOICE_AUTO, "none": pb.TOOL_CHOICE_NONE, "required": pb.TOOL_CHOICE_REQUIRED}
_AS_THEY_ARE = frozenset(field.name for field in pb.Generate.DESCRIPTOR.fields
                         if field.message_type is None and field.name not in _NOT_AS_THEY_ARE)


def generate_frame(prompt: Prompt, options: Options) -> pb.Generate:
    """The request, without the number of its stream. Raises TypeError for an option that there is not."""
    frame = pb.Generate(credit=CREDIT_WINDOW)
    _set_prompt(frame, prompt)
    for name, value in cast("dict[str, Any]", options).items():
        if value is None:
            continue
        if name in _AS_THEY_ARE:
            setattr(frame, name, value)
        elif name in _OF_MESSAGES:
            setattr(frame.messages, name, value)
        elif name == "variables":
            frame.messages.variables = json.dumps(value)
        elif name in _LISTS:
            getattr(frame, name).extend(value)
        elif name == "stop":
            frame.stop.extend([value] if isinstance(value, str) else value)
        elif name == "deadline":
            frame.deadline_ms = round(1000 * value)
        elif name == "tools":
            frame.tools.extend(_tool(each) for each in value)
        elif name == "tool_choice":
            _set_choice(frame, value)
        elif name == "speculation":
            frame.speculation.CopyFrom(pb.Speculation(**value))
        elif name == "logit_bias":
            frame.sampling.logit_bias.extend(
                pb.LogitBias(id=token, bias=bias) for token, bias in value.items())
        elif name == "stop_ids":
            frame.sampling.stop_ids.extend(value)
        elif name in _OF_SAMPLING:
            setattr(frame.sampling, name, value)
        else:
            raise TypeError(f"there is no option {name!r}")
    if frame.HasField("messages") and (isinstance(prompt, str) or not frame.messages.messages):
        raise TypeError("add_generation_prompt, continue_final_message and variables are for prompts of messages")
    return frame


def _set_prompt(frame: pb.Generate, prompt: Prompt) -> None:
    if isinstance(prompt, str):
        frame.text = prompt
        return
    items: list[Any] = list(prompt)
    if items and isinstance(items[0], Mapping):
        frame.messages.messages.extend(_message(each) for each in items)
    else:
        frame.token_ids.SetInParent()
        frame.token_ids.ids.extend(items)


def _function(value: Any) -> Mapping[str, Any]:
    """The function of an object as OpenAI has them, which may be within the object or be it."""
    if not isinstance(value, Mapping):
        raise TypeError(f"a tool, or a call of one, is a mapping, and not {type(value).__name__}")
    return cast("Mapping[str, Any]", value.get("function", value))


def _tool(value: Mapping[str, Any]) -> pb.Tool:
    function = _function(value)
    parameters = function.get("parameters")
    return pb.Tool(name=function.get("name", ""), description=function.get("description") or "",
                   parameters="" if parameters is None else json.dumps(parameters), strict=bool(function.get("strict")))


def _set_choice(frame: pb.Generate, value: str | Mapping[str, Any]) -> None:
    if isinstance(value, str):
        if value not in _CHOICES:
            raise TypeError(f"tool_choice is {', '.join(_CHOICES)} or {{'name': ...}}, and not {value!r}")
        frame.tool_choice = _CHOICES[value]
        return
    frame.tool_choice = pb.TOOL_CHOICE_REQUIRED
    frame.called_tool = _function(value)["name"]


def _call(value: ToolCall | Mapping[str, Any]) -> pb.ToolCall:
    if isinstance(value, ToolCall):
        return pb.ToolCall(id=value.id, name=value.name, arguments=value.arguments)
    function = _function(value)
    arguments = function.get("arguments", "")
    return pb.ToolCall(id=value.get("id", ""), name=function.get("name", ""),
                       arguments=arguments if isinstance(arguments, str) else json.dumps(arguments))


_OF_MESSAGE = ("role", "content", "name", "reasoning", "tool_call_id", "is_error")


def _message(message: Message) -> pb.Messages.Message:
    known = {name: message[name] for name in _OF_MESSAGE if message.get(name) is not None}
    others = {name: value for name, value in message.items()
              if name not in _OF_MESSAGE and name != "tool_calls" and value is not None}
    return pb.Messages.Message(**known, tool_calls=[_call(each) for each in message.get("tool_calls") or ()],
                               members=json.dumps(others) if others else "")
