// Filters that are generators in Jinja2: lazy, consumed once.
#include <fmt/format.h>

#include <algorithm>

#include "text/chat/builtin_tables.h"

namespace nunspark::text::jinja {
namespace {

// map, select, reject, selectattr, rejectattr: one generator class, configured.
class Selection : public IteratorObject {
 public:
  enum class Mode : uint8_t { kMap, kSelect, kReject };

  Selection(Mode mode, bool by_attribute, Call call)
      : IteratorObject("generator"), mode_(mode), by_attribute_(by_attribute), call_(std::move(call)) {}

  void Clear() override {
    call_ = Call();
    function_arguments_.clear();
    path_parts_ = fallback_ = Value();
    cursor_ = Cursor();
  }

 private:
  bool Advance(Runtime& runtime, Value* item) override {
    if (finished_) return false;
    DepthGuard depth(runtime, 2);
    if (!depth.ok) return false;
    if (!started_ && !Start(runtime)) {
      finished_ = true;
      return false;
    }
    started_ = true;
    Value candidate;
    while (runtime.Step() && cursor_.Next(runtime, &candidate)) {
      Value result = Apply(runtime, candidate);
      if (result.failed()) break;
      if (mode_ == Mode::kMap) {
        *item = std::move(result);
        return true;
      }
      if (runtime.Truthy(result) == (mode_ == Mode::kSelect)) {
        *item = std::move(candidate);
        return true;
      }
    }
    finished_ = true;
    return false;
  }

  // As Jinja2: nothing is checked before the first item is asked for, and nothing at all for what is empty or false.
  bool Start(Runtime& runtime) {
    if (!runtime.Truthy(call_.self)) return false;
    return (mode_ == Mode::kMap ? StartMap(runtime) : StartSelect(runtime)) && cursor_.Start(runtime, call_.self);
  }

  bool StartMap(Runtime& runtime) {
    auto& keywords = call_.keywords;
    auto take = [&keywords](std::string_view name) {
      auto it = std::find_if(keywords.begin(), keywords.end(), [&](const auto& k) { return k.first == name; });
      if (it == keywords.end()) return Value::Missing();
      Value value = std::move(it->second);
      keywords.erase(it);
      return value;
    };
    if (call_.rest.empty()) {
      Value attribute = take("attribute");
      if (attribute.missing()) {
        runtime.Fail("FilterArgumentError", "map requires a filter argument");
        return false;
      }
      fallback_ = take("default");
      if (!keywords.empty()) {
        runtime.Fail("FilterArgumentError", fmt::format("Unexpected keyword argument '{}'", keywords[0].first));
        return false;
      }
      by_attribute_ = true;
      path_parts_ = std::move(attribute);
      return true;
    }
    return Resolve(runtime, 0, FindFilter, "filter");
  }

  bool StartSelect(Runtime& runtime) {
    size_t used = 0;
    if (by_attribute_) {
      if (call_.rest.empty()) {
        runtime.Fail("FilterArgumentError", "Missing parameter for attribute name");
        return false;
      }
      path_parts_ = call_.rest[0];
      used = 1;
    }
    return call_.rest.size() <= used || Resolve(runtime, used, FindTest, "test");
  }

  // The filter or test named by argument `i`, and the arguments behind it.
  bool Resolve(Runtime& runtime, size_t i, const Builtin* (*find)(std::string_view), std::string_view what) {
    function_ = call_.rest[i].is_string() ? find(Text(call_.rest[i])) : nullptr;
    if (function_ == nullptr) {
      std::string name;
      runtime.AppendRepr(call_.rest[i], name);
      // Only an item makes Jinja2 look the name up.
      missing_ = fmt::format("No {} named {}.", what, name);
      return true;
    }
    function_arguments_.assign(call_.rest.begin() + static_cast<std::ptrdiff_t>(i) + 1, call_.rest.end());
    return true;
  }

  Value Apply(Runtime& runtime, const Value& candidate) {
    Value value = candidate;
    if (by_attribute_) {
      AttributePath path(runtime);
      if (!path.Parse(path_parts_)) return Value::Failed();
      JINJA_TRY(value, path.Get(value, fallback_));
    }
    if (!missing_.empty()) return runtime.Fail("TemplateRuntimeError", missing_);
    if (function_ == nullptr) return value;
    return runtime.InvokeBuiltin(*function_, std::move(value), {function_arguments_, call_.keywords});
  }

  const Mode mode_;
  bool by_attribute_;
  Call call_;
  Cursor cursor_;
  const Builtin* function_ = nullptr;
  Values function_arguments_;
  Value path_parts_;  // the attribute argument
  Value fallback_ = Value::Missing();
  std::string missing_;
  bool started_ = false;
  bool finished_ = false;
};

template <Selection::Mode kMode, bool kByAttribute>
Value Select(Runtime& runtime, Call& call) {
  return runtime.Adopt(new Selection(kMode, kByAttribute, std::move(call)));
}

Value ItemsFilter(Runtime& runtime, Call& call) {
  return MakeGenerator(runtime, "generator", {call.self}, [](Runtime& rt, Values& kept, Cursor& cursor, Value* item) {
    if (kept.size() == 1) {
      kept.push_back(Value::None());
      if (kept[0].is_undefined()) return false;
      if (!kept[0].is_dict()) {
        rt.TypeError("Can only get item pairs from a mapping.");
        return false;
      }
      if (!cursor.Start(rt, rt.Adopt(new DictViewObject(kept[0], DictPart::kItems)))) return false;
    }
    return cursor.Next(rt, item);
  });
}

Value Unique(Runtime& runtime, Call& call) {
  const bool case_sensitive = FlagArgument(runtime, call, 0);
  auto* seen = new DictObject();
  const Value seen_value = runtime.Adopt(seen);
  const Value attribute = call.has(1) ? call.args[1] : Value::None();
  Values kept = {call.self, attribute, Value::Bool(case_sensitive), seen_value, Value::Bool(false)};
  return MakeGenerator(runtime, "generator", std::move(kept), [](Runtime& rt, Values& k, Cursor& cursor, Value* item) {
    if (!k[4].bool_value()) {
      k[4] = Value::Bool(true);
      if (!cursor.Start(rt, k[0])) return false;
    }
    AttributePath path(rt);
    if (!path.Parse(k[1])) return false;
    auto& known = k[3].as<DictObject>();
    while (rt.Step() && cursor.Next(rt, item)) {
      Value key = path.Get(*item);
      if (!key.failed() && !k[2].bool_value()) key = IgnoreCase(rt, key);
      if (key.failed()) return false;
      const size_t before = known.entries.size();
      if (!rt.Step(8) || !rt.SetKey(known, key, Value::None())) return false;
      if (known.entries.size() == before) continue;
      rt.heap().Grow(&known, sizeof(DictObject::Entry) * 2);
      return true;
    }
    return false;
  });
}

Value Batch(Runtime& runtime, Call& call) {
  Values kept = {call.self, call.args[0], call.has(1) ? call.args[1] : Value::None(), Value::Bool(false)};
  return MakeGenerator(runtime, "generator", std::move(kept), [](Runtime& rt, Values& k, Cursor& cursor, Value* item) {
    // A row is given out when the item after it comes; k[4] keeps that item.
    if (!k[3].bool_value()) {
      k[3] = Value::Bool(true);
      if (!cursor.Start(rt, k[0])) return false;
    }
    Values row;
    if (k.size() > 4) {
      row.push_back(std::move(k[4]));
      k.pop_back();
    }
    Value next;
    while (rt.Step() && cursor.Next(rt, &next)) {
      if (rt.Equal(Value::Int(static_cast<int64_t>(row.size())), k[1])) {
        k.push_back(std::move(next));
        *item = rt.List(std::move(row));
        return !item->failed();
      }
      row.push_back(std::move(next));
      if (!rt.CheckItems(static_cast<int64_t>(row.size()))) return false;
    }
    if (rt.failed() || row.empty()) return false;
    if (!k[2].is_none() && rt.Ordered(CompareOp::kLt, Value::Int(static_cast<int64_t>(row.size())), k[1])) {
      int64_t width = 0;
      if (!rt.ToIndex(k[1], &width) || !rt.CheckItems(width)) return false;
      while (static_cast<int64_t>(row.size()) < width) row.push_back(k[2]);
    }
    if (rt.failed()) return false;
    *item = rt.List(std::move(row));
    return !item->failed();
  });
}

Value SliceFilter(Runtime& runtime, Call& call) {
  Values kept = {call.self, call.args[0], call.has(1) ? call.args[1] : Value::None()};
  // Then: the list, the next slice's number.
  return MakeGenerator(runtime, "generator", std::move(kept), [](Runtime& rt, Values& k, Cursor&, Value* item) {
    if (k.size() == 3) {
      Values all;
      if (!rt.Collect(k[0], &all)) return false;
      Value list = rt.List(std::move(all));
      if (list.failed()) return false;
      k.push_back(std::move(list));
      k.push_back(Value::Int(0));
      if (rt.Binary(BinaryOp::kFloorDiv, Value::Int(rt.Length(k[3])), k[1]).failed()) return false;
    }
    int64_t slices = 0;
    if (!rt.ToIndex(k[1], &slices)) return false;
    const int64_t number = k[4].small_int();
    if (number >= slices) return false;
    const Values& all = k[3].as<ListObject>().items;
    const auto count = static_cast<int64_t>(all.size());
    const int64_t each = count / slices, extra = count % slices;
    const int64_t begin = number * each + std::min(number, extra);
    const int64_t end = (number + 1) * each + std::min(number + 1, extra);
    Values part(all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end));
    if (!k[2].is_none() && number >= extra) part.push_back(k[2]);
    k[4] = Value::Int(number + 1);
    *item = rt.List(std::move(part));
    return !item->failed();
  });
}

using Mode = Selection::Mode;
constexpr Builtin kFilters[] = {
    {"batch", "linecount fill_with?", Batch},
    {"items", "", ItemsFilter},
    {"map", "* **", Select<Mode::kMap, false>},
    {"reject", "* **", Select<Mode::kReject, false>},
    {"rejectattr", "* **", Select<Mode::kReject, true>},
    {"select", "* **", Select<Mode::kSelect, false>},
    {"selectattr", "* **", Select<Mode::kSelect, true>},
    {"slice", "slices fill_with?", SliceFilter},
    {"unique", "case_sensitive? attribute?", Unique},
};

}  // namespace

std::span<const Builtin> SelectionFilters() { return kFilters; }

}  // namespace nunspark::text::jinja
