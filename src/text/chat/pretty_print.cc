// pprint.pformat with its defaults: 80 columns, one space a level, dict keys sorted.
#include <algorithm>

#include "text/chat/builtin_tables.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

constexpr int64_t kWidth = 80;

class PrettyPrinter {
 public:
  PrettyPrinter(Runtime& runtime, std::string& out) : runtime_(runtime), out_(out) {}
  // `allowance`: characters that must still fit behind the value on its last line.
  bool Write(Value value, int64_t indent, int64_t allowance, int level);

 private:
  bool WriteItems(const Values& items, int64_t indent, int64_t allowance, int level);
  bool WriteDict(const DictObject& dict, int64_t indent, int64_t allowance, int level);
  bool WriteText(std::string_view text, int64_t indent, int64_t allowance, int level);
  // By value, as is Write: see ReprWriter.
  bool OneLine(Value value, std::string& out);
  bool SortedEntries(const DictObject& dict, std::vector<std::pair<Value, Value>>* entries);
  void NewLine(int64_t indent) {
    out_ += '\n';
    out_.append(static_cast<size_t>(indent), ' ');
  }

  Runtime& runtime_;
  std::string& out_;
};

bool PrettyPrinter::SortedEntries(const DictObject& dict, std::vector<std::pair<Value, Value>>* entries) {
  for (const DictObject::Entry& entry : dict.entries) entries->emplace_back(entry.key, entry.value);
  // Keys of one kind sort by value; mixed kinds by the name of their type, as pprint's fallback does.
  std::stable_sort(entries->begin(), entries->end(), [this](const auto& a, const auto& b) {
    const bool comparable = (a.first.is_number() && b.first.is_number()) ||
                            (a.first.is_string() && b.first.is_string()) || (a.first.is_tuple() && b.first.is_tuple());
    if (comparable) return runtime_.Ordered(CompareOp::kLt, a.first, b.first);
    return "<class '" + TypeName(a.first) + "'>" < "<class '" + TypeName(b.first) + "'>";
  });
  return !runtime_.failed();
}

// repr() with sorted dicts.
bool PrettyPrinter::OneLine(Value value, std::string& out) {
  DepthGuard depth(runtime_);
  if (!depth.ok || !runtime_.Step(8) || !runtime_.CheckBytes(static_cast<int64_t>(out.size()))) return false;
  if (value.is_dict()) {
    std::vector<std::pair<Value, Value>> entries;
    if (!SortedEntries(value.as<DictObject>(), &entries)) return false;
    out += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += ", ";
      if (!OneLine(entries[i].first, out)) return false;
      out += ": ";
      if (!OneLine(entries[i].second, out)) return false;
    }
    out += '}';
    return true;
  }
  if (value.is_list() || value.is_tuple()) {
    const Values& items = value.as<ListObject>().items;
    out += value.is_list() ? '[' : '(';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += ", ";
      if (!OneLine(items[i], out)) return false;
    }
    out += value.is_list() ? "]" : items.size() == 1 ? ",)" : ")";
    return true;
  }
  return runtime_.AppendRepr(value, out);
}

bool PrettyPrinter::WriteItems(const Values& items, int64_t indent, int64_t allowance, int level) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      out_ += ',';
      NewLine(indent);
    }
    if (!Write(items[i], indent, i + 1 == items.size() ? allowance : 1, level)) return false;
  }
  return true;
}

bool PrettyPrinter::WriteDict(const DictObject& dict, int64_t indent, int64_t allowance, int level) {
  std::vector<std::pair<Value, Value>> entries;
  if (!SortedEntries(dict, &entries)) return false;
  out_ += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) {
      out_ += ',';
      NewLine(indent + 1);
    }
    std::string key;
    if (!OneLine(entries[i].first, key)) return false;
    out_ += key + ": ";
    const bool last = i + 1 == entries.size();
    if (!Write(entries[i].second, indent + 1 + CountCharacters(key) + 2, last ? allowance + 1 : 1, level)) return false;
  }
  out_ += '}';
  return true;
}

// A long string as several literals, one below the other.
bool PrettyPrinter::WriteText(std::string_view text, int64_t indent, int64_t allowance, int level) {
  if (level == 1) {
    ++indent;
    ++allowance;
  }
  std::vector<std::string> chunks;
  std::string whole;
  const auto lines = SplitLines(text, true);
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool last_line = i + 1 == lines.size();
    whole = StringRepr(lines[i]);
    if (CountCharacters(whole) <= kWidth - indent - (last_line ? allowance : 0)) {
      chunks.push_back(whole);
      continue;
    }
    // Words with the white space behind them.
    std::string_view rest = lines[i], current;
    while (!rest.empty()) {
      const std::string_view space = StripLeft(rest, [](uint32_t c) { return !IsSpace(c); });
      const std::string_view after = StripLeft(space, IsSpace);
      const std::string_view part = rest.substr(0, rest.size() - after.size());
      rest = after;
      const std::string_view candidate(current.empty() ? part.data() : current.data(), current.size() + part.size());
      if (!runtime_.StepBytes(candidate.size() * 4 * kPerCharacter)) return false;
      const int64_t width = kWidth - indent - (rest.empty() && last_line ? allowance : 0);
      if (CountCharacters(StringRepr(candidate)) > width) {
        if (!current.empty()) chunks.push_back(StringRepr(current));
        current = part;
      } else {
        current = candidate;
      }
    }
    if (!current.empty()) chunks.push_back(StringRepr(current));
  }
  if (chunks.size() == 1) {
    out_ += whole;
    return true;
  }
  if (level == 1) out_ += '(';
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (i > 0) NewLine(indent);
    out_ += chunks[i];
  }
  if (level == 1) out_ += ')';
  return true;
}

bool PrettyPrinter::Write(Value value, int64_t indent, int64_t allowance, int level) {
  DepthGuard depth(runtime_);
  if (!depth.ok) return false;
  std::string line;
  if (!OneLine(value, line)) return false;
  const bool fits = CountCharacters(line) <= kWidth - indent - allowance;
  if (!fits && value.is_dict()) return WriteDict(value.as<DictObject>(), indent, allowance, level + 1);
  if (!fits && value.is_string() && !IsMarkup(value) && !Text(value).empty()) {
    return WriteText(Text(value), indent, allowance, level + 1);
  }
  const bool is_group = value.is_tuple() && value.as<ListObject>().group;
  if (!fits && (value.is_list() || value.is_tuple()) && !is_group) {
    const Values& items = value.as<ListObject>().items;
    const std::string_view end = value.is_list() ? "]" : items.size() == 1 ? ",)" : ")";
    out_ += value.is_list() ? '[' : '(';
    if (!WriteItems(items, indent + 1, allowance + static_cast<int64_t>(end.size()), level + 1)) return false;
    out_ += end;
    return true;
  }
  out_ += line;
  return runtime_.CheckBytes(static_cast<int64_t>(out_.size()));
}

}  // namespace

bool PrettyPrint(Runtime& runtime, const Value& value, std::string& out) {
  return PrettyPrinter(runtime, out).Write(value, 0, 0, 0);
}

}  // namespace nunspark::text::jinja
