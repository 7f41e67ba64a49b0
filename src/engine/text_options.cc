#include "engine/text_options.h"

#include <charconv>

#include <fmt/format.h>

#include "base/in_range.h"

namespace nunspark {
namespace {

// A text is looked for as many strings as these, of so many bytes, at each token.
constexpr size_t kMostStops = 64;
constexpr size_t kMostStopBytes = 4096;

Status WrongType(const std::string& name, std::string_view wanted, const Json& found) {
  return InvalidArgumentError(fmt::format("\"{}\" must be {}, found {}", name, wanted, found.TypeName()));
}

Result<double> NumberOf(const std::string& name, const Json& value) {
  if (value.is_number()) return value.as_double();
  return WrongType(name, "a number", value);
}

Result<int64_t> IntegerOf(const std::string& name, const Json& value) {
  if (value.is_int()) return value.as_int();
  return WrongType(name, "an integer", value);
}

Result<std::vector<std::string>> StringsOf(const std::string& name, const Json& value) {
  std::vector<std::string> strings;
  if (value.is_string()) return std::vector<std::string>{value.as_string()};
  if (!value.is_array()) return WrongType(name, "a string or a list of strings", value);
  for (const Json& one : value.as_array()) {
    if (!one.is_string()) return WrongType(name, "a string or a list of strings", one);
    strings.push_back(one.as_string());
  }
  return strings;
}

Result<std::vector<int32_t>> IdsOf(const std::string& name, const Json& value) {
  std::vector<int32_t> ids;
  if (!value.is_array()) return WrongType(name, "a list of token ids", value);
  for (const Json& one : value.as_array()) {
    ASSIGN_OR_RETURN(const int64_t id, IntegerOf(name, one));
    ASSIGN_OR_RETURN(ids.emplace_back(), InRange(fmt::format("\"{}\"", name), id, 0, kMostTokens));
  }
  return ids;
}

// {"15": -2.5}, as OpenAI has it.
Result<std::vector<TokenBias>> BiasesOf(const std::string& name, const Json& value) {
  if (!value.is_object()) return WrongType(name, "an object of token ids and numbers", value);
  std::vector<TokenBias> biases;
  for (const auto& [key, bias] : value.as_object()) {
    ASSIGN_OR_RETURN(const double number, NumberOf(name, bias));
    int32_t token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size()) {
      return InvalidArgumentError(fmt::format("\"{}\": '{}' is not a token id", name, key));
    }
    biases.push_back({.token = token, .bias = static_cast<float>(number)});
  }
  return biases;
}

struct NumberField {
  const char* name;
  double SamplingOptions::*member;
};
constexpr NumberField kNumbers[] = {{"temperature", &SamplingOptions::temperature},
                                    {"top_p", &SamplingOptions::top_p},
                                    {"min_p", &SamplingOptions::min_p},
                                    {"typical_p", &SamplingOptions::typical_p},
                                    {"repetition_penalty", &SamplingOptions::repetition_penalty},
                                    {"presence_penalty", &SamplingOptions::presence_penalty},
                                    {"frequency_penalty", &SamplingOptions::frequency_penalty}};

struct CountField {
  const char* name;
  int64_t least;
  int32_t GenerateOptions::*member;
};
constexpr CountField kCounts[] = {{"max_tokens", 1, &GenerateOptions::max_tokens},
                                  {"min_tokens", 0, &GenerateOptions::min_tokens},
                                  {"logprobs", -1, &GenerateOptions::logprobs}};

}  // namespace

Result<bool> TakeTextField(const std::string& name, const Json& value, TextOptions& options) {
  GenerateOptions& generate = options.generate;
  for (const NumberField& field : kNumbers) {
    if (name != field.name) continue;
    ASSIGN_OR_RETURN(generate.sampling.*field.member, NumberOf(name, value));
    return true;
  }
  for (const CountField& field : kCounts) {
    if (name != field.name) continue;
    ASSIGN_OR_RETURN(const int64_t count, IntegerOf(name, value));
    ASSIGN_OR_RETURN(generate.*field.member, InRange(fmt::format("\"{}\"", name), count, field.least, kMostTokens));
    return true;
  }
  if (name == "top_k") {
    ASSIGN_OR_RETURN(const int64_t count, IntegerOf(name, value));
    // -1 is off for other servers.
    ASSIGN_OR_RETURN(generate.sampling.top_k, InRange("\"top_k\"", count == -1 ? 0 : count, 0, kMostTokens));
  } else if (name == "seed") {
    ASSIGN_OR_RETURN(const int64_t seed, IntegerOf(name, value));
    generate.sampling.seed = static_cast<uint64_t>(seed);
  } else if (name == "stop") {
    ASSIGN_OR_RETURN(options.stops, StringsOf(name, value));
    RETURN_IF_ERROR(CheckStops(options.stops));
  } else if (name == "stop_ids" || name == "stop_token_ids") {
    ASSIGN_OR_RETURN(generate.stop_ids, IdsOf(name, value));
  } else if (name == "logit_bias") {
    ASSIGN_OR_RETURN(generate.sampling.logit_bias, BiasesOf(name, value));
  } else if (name == "ignore_eos") {
    if (!value.is_bool()) return WrongType(name, "true or false", value);
    generate.ignore_eos = value.as_bool();
  } else {
    return false;
  }
  return true;
}

Status CheckStops(const std::vector<std::string>& stops) {
  if (stops.size() > kMostStops) {
    return InvalidArgumentError(fmt::format("\"stop\" may hold {} strings, found {}", kMostStops, stops.size()));
  }
  for (const std::string& stop : stops) {
    if (stop.size() <= kMostStopBytes) continue;
    return InvalidArgumentError(
        fmt::format("a stop string may have {} bytes, found one of {}", kMostStopBytes, stop.size()));
  }
  return Status();
}

}  // namespace nunspark
