#!/usr/bin/env python3
"""The shape of a recorded request, without a word of the program that sent it.

    tools/agents/shapes.py PROGRAM VERSION RECORD.json >tests/programs/shapes/NAME.json

RECORD has `method`, `path` and `body`. What the API's owner names stays: fields, types, roles, efforts, keywords of JSON
schemas. Texts, names of tools and of parameters, and identifiers become placeholders, the same one wherever the same
stood. Of a long list of tools at most four stay, and of their parameters those that together show every keyword.
"""
import json
import sys

MAX_TOOLS, MAX_NESTED_TOOLS, MAX_PARAMETERS = 4, 2, 2
# Strings under these names are words of the API.
API_WORDS = {"type", "role", "effort", "summary", "keep", "status", "ttl", "display", "include", "truncation", "verbosity",
             "tool_choice", "mode", "service_tier", "prompt_cache_retention"}
IDENTIFIERS = {"id", "call_id", "tool_call_id", "tool_use_id", "user_id", "prompt_cache_key", "previous_message_id"}
FREE_OBJECTS = {"client_metadata"}  # whose names are the program's own
SCHEMA_WORDS = {"type", "format", "$schema"}
SUBSCHEMAS = {"items", "additionalProperties", "propertyNames", "not", "anyOf", "oneOf", "allOf", "prefixItems"}
PROGRAM_VALUES = {"enum", "const", "default", "examples", "pattern"}


class Placeholders:
    def __init__(self):
        self.given = {}

    def of(self, kind, value):
        names = self.given.setdefault(kind, {})
        return names.setdefault(value, f"{kind}{len(names) + 1}")


def is_schema(value):
    return isinstance(value, dict)


def parameters_of(tool):
    function = tool.get("function", tool)
    return function.get("parameters") or function.get("input_schema") or {}


def name_of(tool):
    return tool.get("function", tool).get("name")


def keywords(schema):
    """What a schema shows: each keyword, with its value where that is the keyword's own word."""
    found = set()
    for key, value in schema.items():
        if key == "properties":
            found.add(key)
            found.update(*(keywords(each) for each in value.values()), ())
        elif key in SUBSCHEMAS:
            found.add((key, type(value).__name__))
            for each in value if isinstance(value, list) else [value]:
                found.update(keywords(each) if is_schema(each) else ())
        else:
            found.add((key, str(value) if key in SCHEMA_WORDS else type(value).__name__))
    return found


def kind_of_tool(tool):
    return tool.get("type", "function"), tuple(sorted(tool.keys() | tool.get("function", {}).keys()))


def called_names(value):
    """Names of the tools that a conversation has calls of."""
    if isinstance(value, list):
        return set().union(*map(called_names, value))
    if not isinstance(value, dict):
        return set()
    if value.get("type") in ("tool_use", "function_call"):
        return {value["name"]}
    if "arguments" in value and "name" in value:
        return {value["name"]}
    return set().union(*map(called_names, value.values()))


def some_tools(tools, called, limit):
    """Those that are called, one of each kind, then those that show most keywords; in their order."""
    left, kept, shown, kinds = list(tools), [], set(), set()
    while left and len(kept) < limit:
        def worth(tool):
            names = {name_of(tool), *map(name_of, tool.get("tools", []))}
            return (not called.isdisjoint(names), kind_of_tool(tool) not in kinds, len(keywords(parameters_of(tool)) - shown))
        best = max(left, key=worth)
        left.remove(best)
        kept.append(best)
        shown |= keywords(parameters_of(best))
        kinds.add(kind_of_tool(best))
    kept.sort(key=tools.index)
    return kept, left, shown


def without_repetition(schema, shown):
    """A schema with the first parameters, and of the others those that show a keyword that `shown` does not have yet."""
    if not is_schema(schema):
        return schema
    schema = dict(schema)
    if "properties" in schema:
        kept = {}
        for name, each in schema["properties"].items():
            if len(kept) < MAX_PARAMETERS or keywords(each) - shown:
                kept[name] = without_repetition(each, shown)
                shown |= keywords(each)
        schema["properties"] = kept
        if "required" in schema:
            schema["required"] = [name for name in schema["required"] if name in kept]
    for key in SUBSCHEMAS & schema.keys():
        value = schema[key]
        schema[key] = [without_repetition(each, shown) for each in value] if isinstance(value, list) \
            else without_repetition(value, shown)
    return schema


class Shape:
    def __init__(self):
        self.names = Placeholders()

    def text(self, value):
        return self.names.of("text ", value)

    def program_value(self, value):
        if isinstance(value, str):
            return self.names.of("value ", value)
        if isinstance(value, list):
            return [self.program_value(each) for each in value[:2]]
        if isinstance(value, dict):
            return {self.names.of("p", key): self.program_value(each) for key, each in value.items()}
        return value

    def schema(self, schema):
        if not is_schema(schema):
            return schema
        shape = {}
        for key, value in schema.items():
            if key == "properties":
                shape[key] = {self.names.of("p", name): self.schema(each) for name, each in value.items()}
            elif key == "required":
                shape[key] = [self.names.of("p", name) for name in value]
            elif key in SUBSCHEMAS:
                shape[key] = [self.schema(each) for each in value] if isinstance(value, list) else self.schema(value)
            elif key in SCHEMA_WORDS or not isinstance(value, (str, list, dict)):
                shape[key] = value
            else:
                shape[key] = self.program_value(value) if key in PROGRAM_VALUES else self.text(value)
        return shape

    def tool(self, tool, called):
        shape = {}
        for key, value in tool.items():
            if key == "name":
                shape[key] = self.names.of("tool_", value)
            elif key == "function":
                shape[key] = self.tool(value, called)
            elif key in ("parameters", "input_schema"):
                shape[key] = self.schema(value)
            elif key == "tools":
                shape[key] = [self.tool(each, called) for each in some_tools(value, called, MAX_NESTED_TOOLS)[0]]
            else:
                shape[key] = value if key == "type" or not isinstance(value, str) else self.text(value)
        return shape

    def tools(self, tools, called):
        kept, left, shown = some_tools(tools, called, MAX_TOOLS)
        written = set()
        for index, tool in enumerate(kept):
            function = tool.get("function", tool)
            key = next((key for key in ("parameters", "input_schema") if key in function), None)
            if key is None:
                continue
            function = {**function, key: without_repetition(function[key], written)}
            written |= keywords(function[key])
            kept[index] = {**tool, "function": function} if "function" in tool else function
        # What only tools that are left out show becomes a parameter of the last.
        for tool in left:
            for name, each in parameters_of(tool).get("properties", {}).items():
                if keywords(each) - shown - written:
                    parameters_of(kept[-1] if parameters_of(kept[-1]) else kept[0]).setdefault("properties", {})[name] = \
                        without_repetition(each, written)
                    written |= keywords(each)
        return [self.tool(each, called) for each in kept]

    def arguments(self, value):
        if isinstance(value, dict):
            return {self.names.of("p", key): self.arguments(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.arguments(each) for each in value]
        return self.text(value) if isinstance(value, str) else value

    def value(self, key, value):
        if isinstance(value, dict):
            if key in FREE_OBJECTS:
                return {self.names.of("k", name): self.text(str(each)) for name, each in value.items()}
            return {name: self.member(value, name) for name in value}
        if isinstance(value, list):
            return [self.value(key, each) for each in value]
        if not isinstance(value, str) or key in API_WORDS:
            return value
        if key == "model":
            return "model"
        if key in IDENTIFIERS:
            return self.names.of("id_", value)
        return self.text(value) if value else value

    def member(self, parent, key):
        value = parent[key]
        if key == "arguments" and isinstance(value, str):
            return json.dumps(self.arguments(json.loads(value)))
        if key in ("input", "parsed_arguments") and isinstance(value, dict):
            return self.arguments(value)
        if key in ("name", "namespace") and isinstance(value, str):
            return self.names.of("tool_", value)
        return self.value(key, value)

    def body(self, body):
        called = called_names([body.get("messages"), body.get("input"), body.get("tool_choice")])
        return {key: self.tools(body[key], called) if key == "tools" else self.member(body, key) for key in body}


def main():
    program, version, path = sys.argv[1:]
    with open(path) as file:
        record = json.load(file)
    shape = {"program": program, "version": version, "method": record["method"], "path": record["path"],
             "body": Shape().body(record["body"])}
    json.dump(shape, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
