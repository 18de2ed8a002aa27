"""Random JSON schemas over every served keyword: schemas(seed) yields them endlessly."""

import random

PATTERNS = [
    '^["]$', r"^\\$", r"^C:\\[a-z]{3}$", r"^\n$", r"^\t+$", "^[a-z]+$", "^[A-Z]{2,4}$", "^[a-z][a-z0-9_]{0,15}$", "[0-9]",
    "^a", "z$", "^(foo|bar|baz)$", "^(?:[a-f0-9]{2}:){2}[a-f0-9]{2}$", r"^\d{3}-\d{4}$", r"^\+?[1-9]\d{1,14}$", "^[^/]+$",
    r"^/[\w./-]*$", r"^\S+$", r"^\s*$", "^.{1,5}$", "^(yes|no)?$", r"^[\w.-]+@[\w-]+\.[a-z]{2,3}$", "^#[0-9a-fA-F]{6}$",
    r"^v?\d+\.\d+\.\d+$", r"^[^\"\\]*$", "^$", "a|^b$", "^(a|b)*c$", r"^\u00e9[\u0400-\u04ff]+$", "^[😀-😎]{1,3}$",
    r"^[\]\-^]+$", "^[a-z]+(-[a-z]+)*$", r"^\W$", r"^\D{2}$", "^x{0,3}y{2,}$", "^(a?b){1,3}$", r"[\x00-\x1f]", r"^\{\}$",
]
FORMATS = ["date", "time", "date-time", "duration", "ipv4", "ipv6", "uuid", "email", "hostname", "uri", "uri-reference",
           "json-pointer", "int64", "password"]
NAMES = ["name", "id", "value", "a", "ab", "b", "type", "kind", "x-y", "é", 'q"uote', "back\\slash", "new\nline", "", "path/to",
         "til~de", "na", "names"]
NAME_PATTERNS = ["^x-", "^[a-z]+$", "[0-9]$", "^(a|b|c)$", "^.{3,}$"]
SCALARS = [None, True, False, 0, 1, -7, 2.5, 1e3, 1.0, "", "a", "b", 'x"y', "tab\t", "\\", "ünï", "red", "green", "blue"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, share):
        return self.random.random() < share

    def pick(self, items):
        return self.random.choice(items)

    def value(self, depth=0):
        if depth > 1 or self.chance(0.8):
            return self.pick(SCALARS)
        if self.chance(0.5):
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 3))]
        return {self.pick(NAMES): self.value(depth + 1) for _ in range(self.random.randint(0, 3))}

    def string(self):
        schema = {"type": "string"}
        what = self.random.random()
        if what < 0.35:
            schema["pattern"] = self.pick(PATTERNS)
        elif what < 0.55:
            schema["format"] = self.pick(FORMATS)
        if self.chance(0.3):
            # If there is a pattern or format, uses bounds that still allow some texts for most patterns and formats.
            bare = len(schema) == 1
            least = self.random.randint(0, 6 if bare else 1)
            if self.chance(0.6):
                schema["minLength"] = least
            if self.chance(0.6):
                schema["maxLength"] = least + self.random.randint(0, 12) + (0 if bare else 12)
        return schema

    def number(self):
        integer = self.chance(0.6)
        schema = {"type": "integer" if integer else "number"}
        low = self.random.randint(-1000, 1000) if self.chance(0.7) else self.random.randint(-10**9, 10**9)
        if not integer and self.chance(0.6):
            low = round(low + self.random.random(), self.random.randint(1, 4))
        high = round(low + self.random.randint(1, 2000), 4)
        if self.chance(0.35):
            schema[self.pick(["minimum", "exclusiveMinimum"])] = low
        if self.chance(0.35):
            schema[self.pick(["maximum", "exclusiveMaximum"])] = high
        if self.chance(0.15):
            schema["multipleOf"] = self.pick([1, 2, 3, 5, 7, 10, 12, 25, 100] if integer else [1, 2, 5, 0.5, 0.25, 1.5, 0.1, 0.01, 0.05, 0.3])
        return schema

    def array(self, depth):
        schema = {"type": "array"}
        if self.chance(0.15):
            schema["prefixItems"] = [self.schema(depth + 1) for _ in range(self.random.randint(1, 3))]
            if self.chance(0.6):
                schema["items"] = self.chance(0.5) and self.schema(depth + 1)
        elif self.chance(0.95):
            schema["items"] = self.schema(depth + 1)
        if self.chance(0.1):
            schema["uniqueItems"] = True
            if self.chance(0.9):
                schema.pop("prefixItems", None)
                schema["items"] = self.pick([{"enum": self.random.sample(SCALARS, self.random.randint(2, 9))},
                                             {"type": "boolean"}, {"type": "integer", "minimum": 1, "maximum": 5}])
                return schema
        least = self.random.randint(0, 3)
        if self.chance(0.3):
            schema["minItems"] = least
        if self.chance(0.3):
            schema["maxItems"] = least + self.random.randint(0, 4)
        return schema

    def object(self, depth):
        schema = {"type": "object"}
        names = self.random.sample(NAMES, self.random.randint(0, 5))
        if names or self.chance(0.5):
            schema["properties"] = {name: self.schema(depth + 1) for name in names}
        if names and self.chance(0.7):
            schema["required"] = self.random.sample(names, self.random.randint(1, len(names)))
            if self.chance(0.05):
                schema["required"].append("elsewhere")
        if self.chance(0.4):
            schema["additionalProperties"] = self.chance(0.3) and (self.chance(0.3) or self.schema(depth + 2))
        if self.chance(0.1):
            schema["patternProperties"] = {self.pick(NAME_PATTERNS): self.schema(depth + 2)}
        if self.chance(0.05):
            schema["propertyNames"] = self.pick([{"pattern": "^[a-z_]+$"}, {"maxLength": 8}, {"enum": NAMES[:9]}])
            schema.pop("required", None)
        if self.chance(0.1):
            schema["maxProperties"] = len(schema.get("required", [])) + self.random.randint(0, 3)
        if names and self.chance(0.1):
            schema["minProperties"] = self.random.randint(1, len(names))
            schema.pop("maxProperties", None)
            schema.pop("propertyNames", None)
        if len(names) > 1 and self.chance(0.08):
            schema["dependentRequired"] = {names[0]: [names[1]]}
            schema.pop("maxProperties", None)
        return schema

    def tagged(self, depth, tag, value):
        schema = self.object(depth + 1)
        for key in ("propertyNames", "maxProperties", "patternProperties"):
            schema.pop(key, None)
        schema["properties"] = {tag: {"const": value}, **{k: v for k, v in schema.get("properties", {}).items() if k != tag}}
        schema["required"] = sorted({tag, *schema.get("required", [])} & set(schema["properties"]))
        return schema

    def one_of(self, depth):
        what = self.random.random()
        if what < 0.4:
            return {"oneOf": [self.tagged(depth, "kind", value) for value in self.random.sample(["a", "b", "c", 1, None], 3)]}
        if what < 0.6:
            return {"oneOf": [self.string(), self.number(), {"type": "null"}][:self.random.randint(2, 3)]}
        if what < 0.75:
            return {"oneOf": [{"enum": self.random.sample(SCALARS, 5)}, {"enum": self.random.sample(SCALARS, 5)}]}
        if what < 0.85:
            return {"oneOf": [{"type": "string", "pattern": self.pick(PATTERNS)}, {"type": "string", "maxLength": 3}]}
        if what < 0.95:
            edge = self.random.randint(-5, 5)
            return {"oneOf": [{"type": "integer", "minimum": edge}, {"type": "integer", "maximum": edge + self.random.randint(-2, 2)}]}
        return {"oneOf": [self.schema(depth + 1), self.schema(depth + 1)]}

    def all_of(self, depth):
        what = self.random.random()
        if what < 0.4:
            first, second = self.object(depth + 1), self.object(depth + 1)
            for one in (first, second):
                for key in ("additionalProperties", "propertyNames", "maxProperties"):
                    one.pop(key, None)
            shared = set(first.get("properties", {})) & set(second.get("properties", {}))
            for name in shared:
                del second["properties"][name]
            second["required"] = [name for name in second.get("required", []) if name not in shared]
            return {"allOf": [first, second]}
        if what < 0.7:
            return {"allOf": [{"type": "string"}, {"pattern": self.pick(PATTERNS)}, {"maxLength": self.random.randint(4, 20)}]}
        if what < 0.85:
            return {"type": "integer", "allOf": [{"minimum": -50}, {"maximum": 50}, {"multipleOf": self.pick([2, 3, 5])}]}
        return {"allOf": [self.schema(depth + 1)], "description": "a wrapped schema"}

    def reference(self):
        return {"$ref": self.pick(["#/$defs/text", "#/$defs/a~1b", "#/$defs/c~0d", "#/$defs/e%25f", "#anchored", "#/$defs/tree"])}

    def negated(self):
        return self.pick([{"type": "string", "not": {"enum": ["a", "b"]}}, {"type": ["string", "null"], "not": {"type": "null"}},
                          {"type": "integer", "minimum": 0, "not": {"const": 5}},
                          {"type": "string", "maxLength": 9, "not": {"pattern": self.pick(PATTERNS[5:12])}}])

    def conditional(self, depth):
        return {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "value": {}}, "required": ["kind", "value"],
                "if": {"properties": {"kind": {"const": "a"}}},
                "then": {"properties": {"value": self.schema(depth + 2)}},
                "else": {"properties": {"value": self.schema(depth + 2)}}}

    def schema(self, depth=0):
        what = self.random.random()
        if depth > 3 or (depth > 0 and what < 0.45):
            return self.pick([self.string, self.string, self.number, lambda: {"type": self.pick(["boolean", "null"])}])()
        if depth == 0 and what < 0.45:
            return self.object(depth)
        if what < 0.55:
            return self.object(depth)
        if what < 0.65:
            return self.array(depth)
        if what < 0.70:
            return {"enum": [self.value() for _ in range(self.random.randint(1, 5))]} if self.chance(0.7) else {"const": self.value()}
        if what < 0.76:
            return {"anyOf": [self.schema(depth + 1) for _ in range(self.random.randint(1, 3))]}
        if what < 0.81:
            return self.one_of(depth)
        if what < 0.86:
            return self.all_of(depth)
        if what < 0.91:
            return self.reference()
        if what < 0.93:
            return {"type": self.random.sample(["string", "integer", "null", "boolean", "number"], 2), "maxLength": 5, "minimum": 0}
        if what < 0.95:
            return self.negated()
        if what < 0.97:
            return self.conditional(depth)
        return self.pick([True, {}, {"title": "anything"}])

    def document(self):
        schema = self.schema()
        if not isinstance(schema, dict):
            return schema
        definitions = {"text": self.string(), "a/b": self.number(), "c~d": {"type": "boolean"}, "e%f": self.array(2),
                       "g": {"$anchor": "anchored", "type": ["null", "integer"]},
                       "tree": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [
                           {"$ref": "#/$defs/tree"}, {"type": "null"}]}}, "required": ["v"], "additionalProperties": False}}
        return {**schema, "$defs": definitions}


def schemas(seed):
    generator = Generator(seed)
    while True:
        yield generator.document()
