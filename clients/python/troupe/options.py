"""What a request for an answer says beside its prompt."""
from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Union, cast

from . import troupe_pb2 as pb

Message = Mapping[str, Any]
"""One turn of a conversation: "role", "content", and what else there is of "name" and "reasoning"; all other members
(tool_calls, ...) reach the model's chat template as they are."""

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
    begins_with: str
    """The text that the answer begins with, behind its reasoning; a part of the answer."""
    json_schema: str
    """What the answer has to be, at most one of these: the text of a JSON Schema, ..."""
    regex: str
    """... a pattern of ECMA-262 that the whole answer matches, ..."""
    choices: Sequence[str]
    """... texts one of which the answer is, ..."""
    json_object: bool
    """... any JSON object. docs/structured.md says more."""
    compact_json: bool
    """Of json_schema and json_object: without spaces and line breaks."""
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


_OF_SAMPLING = frozenset(field.name for field in pb.Sampling.DESCRIPTOR.fields)
_OF_MESSAGES = frozenset(("add_generation_prompt", "continue_final_message"))
_NOT_AS_THEY_ARE = frozenset(("stream", "deadline_ms", "text", "stop"))  # numbers and texts of Generate, but for these
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
        elif name == "stop":
            frame.stop.extend([value] if isinstance(value, str) else value)
        elif name == "deadline":
            frame.deadline_ms = round(1000 * value)
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


def _message(message: Message) -> pb.Messages.Message:
    known = {name: message[name] for name in ("role", "content", "name", "reasoning") if message.get(name) is not None}
    others = {name: value for name, value in message.items() if name not in ("role", "content", "name", "reasoning")}
    return pb.Messages.Message(**known, members=json.dumps(others) if others else "")
