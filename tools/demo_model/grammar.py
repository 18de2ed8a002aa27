"""A small unification grammar: one definition both generates and recognises text.

A grammar is a set of rules. A rule is a list of alternative templates:

    plain text          stands for itself
    {hero.name}         attribute ``name`` of the table entry bound to ``hero``
    {hero.Name}         the same with a capital first letter
    <rule>              one alternative of another rule
    (one|other|)        inline alternatives

A variable keeps its entry for the whole text, so names, pronouns, facts and
sums agree. Relations restrict which entries two variables may have together.

The generator favours one alternative at every choice. Which one depends on an
entry that the text has already mentioned, so a trained model can predict it.
"""

import re
import zlib
from dataclasses import dataclass, field

_MARKUP = re.compile(r"\{(\w+)\.(\w+)\}|<(\w+)>|([(|)])")
_SENTENCE_END = re.compile(r"""(?<=[.!?])\s+(?=[A-Z0-9"<{(])|(?<=[.!?]")\s+(?=[A-Z0-9"<{(])""")
_WORD = re.compile(r"[A-Za-z]+|[0-9]+")


def words(text):
    """Return the words of a text in lower case."""
    return [word.lower() for word in _WORD.findall(text)]


def split_sentences(text):
    """Split a text, or a template, at the ends of its sentences."""
    return [part for part in _SENTENCE_END.split(text.strip()) if part]


@dataclass(frozen=True)
class Literal:
    text: str


@dataclass(frozen=True)
class Slot:
    variable: str
    attribute: str


@dataclass(frozen=True)
class Reference:
    rule: str


@dataclass(frozen=True)
class Choice:
    site: str
    options: tuple


def parse_template(template, site):
    """Parse a template into a tuple of nodes."""
    levels = [[[]]]  # open choices; each holds its options; an option is a list of nodes
    choices = 0
    end = 0
    for match in _MARKUP.finditer(template):
        if match.start() > end:
            levels[-1][-1].append(Literal(template[end:match.start()]))
        end = match.end()
        variable, attribute, rule, bar = match.groups()
        if variable:
            levels[-1][-1].append(Slot(variable, attribute))
        elif rule:
            levels[-1][-1].append(Reference(rule))
        elif bar == "(":
            levels.append([[]])
        elif bar == "|":
            levels[-1].append([])
        else:
            options = tuple(tuple(option) for option in levels.pop())
            levels[-1][-1].append(Choice(f"{site}/{choices}", options))
            choices += 1
    if end < len(template):
        levels[-1][-1].append(Literal(template[end:]))
    assert len(levels) == 1 and len(levels[0]) == 1, f"unbalanced template: {template!r}"
    return tuple(levels[0][0])


@dataclass
class Grammar:
    rules: dict                 # rule name -> list of templates
    variables: dict             # variable name -> table
    relations: dict             # (variable, variable) -> predicate on their entries
    starts: tuple               # the rules whose texts are recognised
    keys: tuple = ()            # variables that steer preferences, most important first
    rule_keys: dict = field(default_factory=dict)  # rule -> (variable, attribute naming an option)
    preference: float = 0.7     # probability of the favoured option

    def __post_init__(self):
        self.parsed = {
            name: Choice(name, tuple(parse_template(t, f"{name}.{i}") for i, t in enumerate(templates)))
            for name, templates in self.rules.items()}
        self.sentence_templates = tuple(dict.fromkeys(
            parse_template(sentence, name)
            for name in self._reachable()
            for template in self.rules[name]
            for sentence in split_sentences(template)
            if re.search(r'[.!?]"?$', sentence)))
        self._partners = {}
        for (one, other), accepts in self.relations.items():
            self._partners.setdefault(one, []).append((other, accepts))
            self._partners.setdefault(other, []).append((one, lambda a, b, accepts=accepts: accepts(b, a)))

    # ---- generation -----------------------------------------------------------------

    def generate(self, rule, random, bound=None, steer=True):
        """Generate a text; ``bound`` maps variables to entry indices and is extended.

        Without ``steer`` all alternatives are equally likely.
        """
        pieces = []
        preference = self.preference if steer else 0.0
        self._expand(self.parsed[rule], random, {} if bound is None else bound, preference, pieces)
        return "".join(pieces)

    def _expand(self, node, random, bound, preference, pieces):
        if isinstance(node, Literal):
            pieces.append(node.text)
        elif isinstance(node, Slot):
            if node.variable not in bound:
                allowed = self._allowed(node.variable, bound)
                bound[node.variable] = allowed[self._pick(node.variable, len(allowed), random, bound, preference)]
            pieces.append(value(self.variables[node.variable][bound[node.variable]], node.attribute))
        elif isinstance(node, Reference):
            self._expand(self.parsed[node.rule], random, bound, preference, pieces)
        else:
            option = self._pick(node.site, len(node.options), random, bound, preference)
            for child in node.options[option]:
                self._expand(child, random, bound, preference, pieces)

    def _allowed(self, variable, bound):
        """Return the entries that a variable may have next to those already bound."""
        return [i for i, entry in enumerate(self.variables[variable])
                if all(accepts(entry, self.variables[other][bound[other]])
                       for other, accepts in self._partners.get(variable, ()) if other in bound)]

    def _pick(self, site, count, random, bound, preference):
        """Return the favoured one of ``count`` options with probability ``preference``, else any."""
        if random.random() >= preference:
            return random.randrange(count)
        variable, attribute = self.rule_keys.get(site, (None, None))
        if variable in bound:
            name = self.variables[variable][bound[variable]][attribute]
            return self.rules[site].index(f"<{name}>")
        return self._hash(site, bound) % count

    def _hash(self, site, bound):
        """Return a fixed number for a choice, given one of the entries that steer it."""
        keys = [key for key in self.keys if key in bound][:2]
        number = zlib.crc32(site.encode())
        if not keys:
            return number
        key = keys[number % len(keys)]
        return zlib.crc32(f"{site} {key} {bound[key]}".encode()) >> 3  # drops the low bits, which are not random enough

    # ---- recognition ----------------------------------------------------------------

    def accepts(self, rule, text, prefix=False):
        """Return whether the rule derives the text, or with ``prefix`` a continuation of it."""
        return self._matches((self.parsed[rule],), text, prefix)

    def accepts_sentence(self, text, prefix=False):
        """Return whether any sentence of the grammar is the text, or continues it."""
        return any(self._matches(template, text, prefix) for template in self.sentence_templates)

    def _matches(self, nodes, text, prefix):
        self._ran_out = False
        for end, _ in self._walk(nodes, 0, text, 0, {}):
            if end == len(text):
                return True
            if prefix and self._ran_out:
                return True
        return prefix and self._ran_out

    def _walk(self, nodes, index, text, position, domains):
        """Yield every (end, domains) at which nodes[index:] can match from position."""
        if index == len(nodes):
            yield position, domains
            return
        for end, narrowed in self._match_node(nodes[index], text, position, domains):
            yield from self._walk(nodes, index + 1, text, end, narrowed)

    def _match_node(self, node, text, position, domains):
        if isinstance(node, Literal):
            if self._match_text(node.text, text, position):
                yield position + len(node.text), domains
        elif isinstance(node, Slot):
            yield from self._match_slot(node, text, position, domains)
        elif isinstance(node, Reference):
            yield from self._match_node(self.parsed[node.rule], text, position, domains)
        else:
            for option in node.options:
                yield from self._walk(option, 0, text, position, domains)

    def _match_text(self, expected, text, position):
        if text.startswith(expected, position):
            return True
        if expected.startswith(text[position:]):
            self._ran_out = True
        return False

    def _match_slot(self, slot, text, position, domains):
        entries = self.variables[slot.variable]
        by_value = {}
        for i in domains.get(slot.variable, range(len(entries))):
            by_value.setdefault(value(entries[i], slot.attribute), []).append(i)
        for expected, candidates in by_value.items():
            if self._match_text(expected, text, position):
                narrowed = self._narrow(slot.variable, tuple(candidates), domains)
                if narrowed is not None:
                    yield position + len(expected), narrowed

    def _narrow(self, variable, candidates, domains):
        """Restrict a variable and its related variables; None if nothing is left."""
        domains = {**domains, variable: candidates}
        entries = self.variables[variable]
        for other, accepts in self._partners.get(variable, ()):
            if other not in domains:
                continue
            others = self.variables[other]
            kept = tuple(j for j in domains[other]
                         if any(accepts(entries[i], others[j]) for i in domains[variable]))
            left = tuple(i for i in domains[variable]
                         if any(accepts(entries[i], others[j]) for j in kept))
            if not left:
                return None
            domains[other], domains[variable] = kept, left
        return domains

    # ---- what the start rules can contain ---------------------------------------------

    def _reachable(self):
        """Return the names of all rules that the start rules use, directly or not."""
        found, pending = [], list(self.starts)
        while pending:
            name = pending.pop()
            if name not in found:
                found.append(name)
                pending.extend(re.findall(r"<(\w+)>", " ".join(self.rules[name])))
        return found

    def vocabulary(self):
        """Return every word that texts of the start rules can contain."""
        found, pending = set(), [self.parsed[name] for name in self._reachable()]
        while pending:
            node = pending.pop()
            if isinstance(node, Literal):
                found.update(words(node.text))
            elif isinstance(node, Slot):
                for entry in self.variables[node.variable]:
                    found.update(words(value(entry, node.attribute)))
            elif isinstance(node, Choice):
                pending.extend(child for option in node.options for child in option)
        return found


def value(entry, attribute):
    """Return an entry's attribute; a capital attribute name asks for a capital first letter."""
    if attribute[0].isupper():
        text = entry[attribute[0].lower() + attribute[1:]]
        return text[0].upper() + text[1:]
    return entry[attribute]
