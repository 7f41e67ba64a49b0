// Calling: binds arguments to the parameters of builtins and dispatches on what is called.
#include <fmt/format.h>

#include "text/chat/interpreter.h"
#include "text/chat/runtime.h"

namespace nunspark::text::jinja {
namespace {

bool Bind(Runtime& runtime, const Builtin& builtin, Arguments& arguments, Call* call) {
  size_t used = 0;
  bool takes_rest = false, takes_keywords = false, positional_only = false;
  auto& keywords = arguments.keywords;
  std::string_view list = builtin.parameters;
  while (!list.empty()) {
    const size_t space = list.find(' ');
    std::string_view name = list.substr(0, space);
    list = space == std::string_view::npos ? std::string_view() : list.substr(space + 1);
    if (name == "/") {
      positional_only = true;
    } else if (name == "*") {
      takes_rest = true;
    } else if (name == "**") {
      takes_keywords = true;
    } else {
      const bool optional = name.back() == '?';
      if (optional) name.remove_suffix(1);
      Value value = Value::Missing();
      if (used < arguments.positional.size()) value = std::move(arguments.positional[used++]);
      for (size_t i = 0; i < keywords.size() && !positional_only; ++i) {
        if (keywords[i].first != name) continue;
        if (!value.missing()) {
          runtime.TypeError(fmt::format("{}() got multiple values for argument '{}'", builtin.name, name));
          return false;
        }
        value = std::move(keywords[i].second);
        keywords.erase(keywords.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
      if (value.missing() && !optional) {
        runtime.TypeError(fmt::format("{}() missing required argument '{}'", builtin.name, name));
        return false;
      }
      call->args.push_back(std::move(value));
    }
  }
  for (; used < arguments.positional.size() && takes_rest; ++used) {
    call->rest.push_back(std::move(arguments.positional[used]));
  }
  if (used < arguments.positional.size()) {
    runtime.TypeError(
        fmt::format("{}() takes {} arguments but {} were given", builtin.name, used, arguments.positional.size()));
    return false;
  }
  if (!keywords.empty() && !takes_keywords) {
    runtime.TypeError(fmt::format("{}() got an unexpected keyword argument '{}'", builtin.name, keywords[0].first));
    return false;
  }
  call->keywords = std::move(keywords);
  return true;
}

}  // namespace

Value Runtime::InvokeBuiltin(const Builtin& builtin, Value self, Arguments arguments) {
  if (!Step()) return Value::Failed();
  DepthGuard depth(*this, 2);
  if (!depth.ok) return Value::Failed();
  Call call;
  call.self = std::move(self);
  if (!Bind(*this, builtin, arguments, &call)) return Value::Failed();
  // Whatever it does with its texts, it may read all of them.
  size_t bytes = call.self.is_string() ? Text(call.self).size() : 0;
  for (const Value& argument : call.args) bytes += argument.is_string() ? Text(argument).size() : 0;
  if (!StepBytes(bytes * static_cast<size_t>(builtin.price))) return Value::Failed();
  return builtin.call(*this, call);
}

Value Runtime::Invoke(const Value& callee, Arguments arguments) {
  switch (callee.kind()) {
    case Kind::kUndefined: return FailUndefined(callee);
    case Kind::kFunction: {
      const auto& function = callee.as<FunctionObject>();
      return InvokeBuiltin(*function.builtin, function.self, std::move(arguments));
    }
    case Kind::kMacro: return interpreter->CallMacro(callee.as<MacroObject>(), arguments);
    case Kind::kLoop:
      if (arguments.positional.size() != 1 || !arguments.keywords.empty()) {
        return TypeError("loop() takes exactly one argument, the items to loop over");
      }
      return interpreter->CallLoop(callee.as<LoopObject>(), arguments.positional[0]);
    case Kind::kBlock:
      if (!arguments.positional.empty() || !arguments.keywords.empty()) return TypeError("a block takes no arguments");
      return interpreter->CallBlock(callee.as<BlockObject>());
    case Kind::kJoiner: {
      auto& joiner = callee.as<JoinerObject>();
      if (!arguments.positional.empty() || !arguments.keywords.empty()) return TypeError("a joiner takes no arguments");
      if (joiner.used) return joiner.separator;
      joiner.used = true;
      return String("");
    }
    default: return TypeError(fmt::format("'{}' object is not callable", TypeName(callee)));
  }
}

bool Runtime::ToIndex(const Value& value, int64_t* index) {
  if (value.kind() == Kind::kInt || value.kind() == Kind::kBool) {
    *index = value.small_int();
    return true;
  }
  if (value.kind() == Kind::kBig) {
    Fail("OverflowError", "Python int too large to convert to C ssize_t");
  } else {
    TypeError(fmt::format("'{}' object cannot be interpreted as an integer", TypeName(value)));
  }
  return false;
}

}  // namespace nunspark::text::jinja
