"""The published schemas of OpenAI's API: whether a value is one of theirs. Exits with 77 where something is missing."""
import json
import os
import pathlib
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: python3-jsonschema is not installed")
    sys.exit(77)


def _with_nulls(schema):
    """OpenAPI 3.0's "nullable", which the document still has and JSON Schema does not know, as a choice of null."""
    if isinstance(schema, list):
        return [_with_nulls(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _with_nulls(value) for key, value in schema.items() if key != "nullable"}
    return {"anyOf": [inner, {"type": "null"}]} if schema.get("nullable") is True else inner


class Schemas:
    def __init__(self, file):
        file = pathlib.Path(file)
        if not file.exists():
            print(f"skipped: no reference data in {file.parent} (TROUPE_SHARED_DIR)")
            sys.exit(77)
        self._schemas = json.loads(file.read_text())["components"]["schemas"]
        self._nullable = _with_nulls(self._schemas)
        self._validators = {}
        self.counts = {}  # of values, by schema

    def _part(self, name, value):
        """The schema to validate with: of events, the one of its type, so that an error names what is wrong."""
        if name != "ResponseStreamEvent":
            return name
        for part in self._schemas[name]["anyOf"]:
            event = part["$ref"].rsplit("/", 1)[1]
            if value.get("type") in self._schemas[event]["properties"]["type"].get("enum", []):
                return event
        return None

    def error(self, name, value):
        """What is wrong with the value, or None."""
        part = self._part(name, value)
        if part is None:
            return f"no event of the API has type {value.get('type')!r}"
        if part not in self._validators:
            schema = {"$ref": f"#/components/schemas/{part}", "components": {"schemas": self._nullable}}
            self._validators[part] = jsonschema.Draft202012Validator(schema)
        self.counts[part] = self.counts.get(part, 0) + 1
        error = jsonschema.exceptions.best_match(self._validators[part].iter_errors(value))
        if error is None:
            return None
        return f"{part}: at {'/'.join(str(each) for each in error.absolute_path)}: {error.message[:300]}"


def shared_file():
    return os.path.join(os.environ.get("TROUPE_SHARED_DIR", "../shared"), "thirdparty/openai/openapi-subset.json")
