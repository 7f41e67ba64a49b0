// Functions that every template can call.
#include <fmt/format.h>

#include <algorithm>

#include "text/chat/builtin_tables.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

// Jinja2's sandbox allows no longer range.
constexpr int64_t kMaxRange = 100'000;
constexpr int64_t kFarthest = int64_t{1} << 61;

Value Range(Runtime& runtime, Call& call) {
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (!IntegerArgument(runtime, call, i, bounds[i], &bounds[i])) return Value::Failed();
    if (bounds[i] > kFarthest || bounds[i] < -kFarthest) {
      return runtime.Fail("OverflowError", "Range too big. Bounds are limited to 2**61.");
    }
  }
  auto [start, stop, step] = bounds;
  if (!call.has(1)) {
    stop = start;
    start = 0;
  }
  if (step == 0) return runtime.ValueError("range() arg 3 must not be zero");
  auto* range = new RangeObject(start, stop, step);
  Value value = runtime.Adopt(range);
  if (range->length > kMaxRange) {
    return runtime.Fail("OverflowError",
                        fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange));
  }
  return value;
}

bool AddPairs(Runtime& runtime, const Value& pairs, DictObject& dict) {
  Values items;
  if (!runtime.Collect(pairs, &items)) return false;
  for (size_t i = 0; i < items.size(); ++i) {
    Values pair;
    if (!runtime.IsIterable(items[i])) {
      runtime.TypeError(fmt::format("cannot convert dictionary update sequence element #{} to a sequence", i));
      return false;
    }
    if (!runtime.Collect(items[i], &pair)) return false;
    if (pair.size() != 2) {
      runtime.ValueError(
          fmt::format("dictionary update sequence element #{} has length {}; 2 is required", i, pair.size()));
      return false;
    }
    if (!runtime.SetKey(dict, pair[0], pair[1])) return false;
  }
  return true;
}

Value Dict(Runtime& runtime, Call& call) {
  // Python asks for its keys() first, which an Undefined does not survive.
  if (call.has(0) && call.args[0].is_undefined()) return runtime.FailUndefined(call.args[0]);
  auto* dict = new DictObject();
  bool ok = true;
  if (call.has(0) && call.args[0].is_dict()) {
    for (const DictObject::Entry& entry : call.args[0].as<DictObject>().entries) {
      dict->Set(entry.key, entry.hash, entry.value);
    }
  } else if (call.has(0)) {
    ok = AddPairs(runtime, call.args[0], *dict);
  }
  for (auto& [name, value] : call.keywords) ok = ok && runtime.SetText(*dict, name, std::move(value));
  Value value = runtime.Seal(dict);
  return ok ? value : Value::Failed();
}

Value Namespace(Runtime& runtime, Call& call) {
  JINJA_TRY(Value attributes, Dict(runtime, call));
  auto* space = new NamespaceObject();
  space->attributes = std::move(attributes);
  return runtime.Adopt(space);
}

Value Cycler(Runtime& runtime, Call& call) {
  if (call.rest.empty()) return runtime.Fail("RuntimeError", "at least one item has to be provided");
  auto* cycler = new CyclerObject();
  cycler->items = std::move(call.rest);
  return runtime.Adopt(cycler);
}

Value Joiner(Runtime& runtime, Call& call) {
  return runtime.Adopt(new JoinerObject(call.has(0) ? call.args[0] : runtime.String(", ")));
}

Value RaiseException(Runtime& runtime, Call& call) {
  std::string message;
  if (!runtime.AppendStr(call.args[0], message)) return Value::Failed();
  return runtime.Fail("TemplateError", std::move(message));
}

Value StrftimeNow(Runtime& runtime, Call& call) {
  std::string_view format;
  if (!TextArgument(runtime, call, 0, &format)) return Value::Failed();
  if (!runtime.StepBytes(format.size() * 4 * kPerCharacter)) return Value::Failed();
  return runtime.String(FormatTime(runtime.now(), format));
}

// Filler text. Jinja2's is random; this one is the same every time, since the output of a render must not vary.
Value LoremIpsum(Runtime& runtime, Call& call) {
  static constexpr std::string_view kWords[] = {"lorem",  "ipsum", "dolor",  "sit",    "amet",  "magna",
                                                "velit",  "nulla", "tempus", "libero", "justo", "cursus",
                                                "mollis", "porta", "risus",  "urna"};
  int64_t bounds[4] = {5, 1, 20, 100};  // paragraphs, html, fewest and most words
  for (size_t i : {size_t{0}, size_t{2}, size_t{3}}) {
    if (!IntegerArgument(runtime, call, i, bounds[i], &bounds[i])) return Value::Failed();
  }
  const bool html = !call.has(1) || runtime.Truthy(call.args[1]);
  if (bounds[2] >= bounds[3]) return runtime.ValueError("empty range for lipsum()");
  std::string out;
  uint64_t state = 0x9E3779B97F4A7C15u;
  for (int64_t paragraph = 0; paragraph < bounds[0]; ++paragraph) {
    std::string text;
    const int64_t count = bounds[2] + static_cast<int64_t>(static_cast<uint64_t>(paragraph) * 7 %
                                                           static_cast<uint64_t>(bounds[3] - bounds[2]));
    if (!runtime.Step(1 + std::max<int64_t>(0, count)) || !runtime.CheckItems(count)) return Value::Failed();
    for (int64_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const std::string_view word = kWords[state >> 60];
      if (i > 0) text += ' ';
      text += i == 0 ? Capitalize(word) : std::string(word);
    }
    text += '.';
    if (paragraph > 0) out += html ? "\n" : "\n\n";
    out += html ? "<p>" + text + "</p>" : text;
    if (!runtime.CheckBytes(static_cast<int64_t>(out.size()))) return Value::Failed();
  }
  return runtime.String(std::move(out), html);
}

constexpr Builtin kGlobals[] = {
    {"cycler", "*", Cycler},
    {"dict", "/ iterable? **", Dict},
    {"joiner", "sep?", Joiner},
    {"lipsum", "n? html? min? max?", LoremIpsum},
    {"namespace", "/ iterable? **", Namespace},
    {"raise_exception", "message", RaiseException},
    {"range", "/ start stop? step?", Range},
    {"strftime_now", "format", StrftimeNow},
};

}  // namespace

std::span<const Builtin> Globals() { return kGlobals; }

}  // namespace nunspark::text::jinja
