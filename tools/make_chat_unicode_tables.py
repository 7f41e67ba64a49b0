#!/usr/bin/python3
"""Writes src/text/chat/unicode_tables.inc from Python's own Unicode data.

Templates are written against Python, so its str methods are the reference: which characters each is...() method
accepts, and what each case mapping gives, as ranges and runs.
"""
import unicodedata

SURROGATES = range(0xD800, 0xE000)
ALL = [c for c in range(0x110000) if c not in SURROGATES]


def ranges(chars):
    out = []
    for c in chars:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def write_ranges(name, comment, chars):
    print(f"// {comment}")
    print(f"constexpr CodePointRange {name}[] = {{")
    items = [f"{{0x{a:X}, 0x{b:X}}}" for a, b in ranges(chars)]
    for i in range(0, len(items), 6):
        print("    " + ", ".join(items[i:i + 6]) + ",")
    print("};\n")


def write_mapping(name, comment, mapping):
    """Runs of equal distance as one entry: {first, last, step, delta}; longer results spelled out."""
    print(f"// {comment}")
    simple = [(c, ord(m)) for c, m in mapping if len(m) == 1]
    runs = []
    for c, m in simple:
        if runs:
            first, last, step, delta = runs[-1]
            gap = c - last
            if m - c == delta and gap in (1, 2) and (step == 0 or step == gap):
                runs[-1] = [first, c, gap, delta]
                continue
        runs.append([c, c, 0, m - c])
    print(f"constexpr CaseRun k{name}Runs[] = {{")
    items = [f"{{0x{a:X}, 0x{b:X}, {max(s, 1)}, {d}}}" for a, b, s, d in runs]
    for i in range(0, len(items), 4):
        print("    " + ", ".join(items[i:i + 4]) + ",")
    print("};\n")
    print(f"constexpr LongCase k{name}Long[] = {{")
    items = []
    for c, m in mapping:
        if len(m) > 1:
            points = ", ".join(f"0x{ord(x):X}" for x in m)
            items.append(f"{{0x{c:X}, {{{points}}}}}")
    for i in range(0, len(items), 4):
        print("    " + ", ".join(items[i:i + 4]) + ",")
    print("};\n")


def main():
    print(f"// Made by tools/make_chat_unicode_tables.py from Unicode {unicodedata.unidata_version}. Do not edit.\n")
    category = {c: unicodedata.category(chr(c)) for c in ALL}
    write_ranges("kPrintable", "str.isprintable", [c for c in ALL if chr(c).isprintable()])
    write_ranges("kAlpha", "str.isalpha", [c for c in ALL if chr(c).isalpha()])
    write_ranges("kDecimal", "str.isdecimal", [c for c in ALL if chr(c).isdecimal()])
    write_ranges("kDigit", "str.isdigit but not str.isdecimal",
                 [c for c in ALL if chr(c).isdigit() and not chr(c).isdecimal()])
    write_ranges("kNumeric", "str.isnumeric but not str.isdigit",
                 [c for c in ALL if chr(c).isnumeric() and not chr(c).isdigit()])
    write_ranges("kLower", "str.islower", [c for c in ALL if chr(c).islower()])
    write_ranges("kUpper", "str.isupper", [c for c in ALL if chr(c).isupper()])
    write_ranges("kTitle", "category Lt", [c for c in ALL if category[c] == "Lt"])
    write_ranges("kIdentifierStart", "may begin an identifier", [c for c in ALL if chr(c).isidentifier()])
    write_ranges("kIdentifierExtra", "may continue but not begin an identifier",
                 [c for c in ALL if ("a" + chr(c)).isidentifier() and not chr(c).isidentifier()])
    # Characters that final-sigma detection steps over.
    ignorable = [c for c in ALL if category[c] in ("Mn", "Me", "Cf", "Lm", "Sk") or chr(c) in "'.:\u00b7\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a"]
    write_ranges("kCaseIgnorable", "Case_Ignorable", ignorable)
    for name, method in (("Upper", str.upper), ("Lower", str.lower), ("Title", str.title), ("Fold", str.casefold)):
        write_mapping(name, f"str.{method.__name__} of one character",
                      [(c, method(chr(c))) for c in ALL if method(chr(c)) != chr(c)])


main()
