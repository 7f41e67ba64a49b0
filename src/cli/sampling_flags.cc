#include "cli/sampling_flags.h"

#include <charconv>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "cli/engine_flags.h"

namespace nunspark::cli {
namespace {

constexpr int64_t kMostTokens = 1 << 28;

Result<int32_t> InRange(const std::string& name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return static_cast<int32_t>(value);
  return InvalidArgumentError(fmt::format("{} must be from {} to {}, found {}", name, least, most, value));
}

// The whole 64-bit range and nothing beyond it.
Result<uint64_t> ParseSeed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return seed;
  return InvalidArgumentError(
      fmt::format("--seed must be from 0 to {}, found '{}'", std::numeric_limits<uint64_t>::max(), text));
}

// "15:-2.5,16:-inf"
Result<std::vector<TokenBias>> ParseBiases(const std::string& text) {
  std::vector<TokenBias> biases;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    TokenBias bias;
    const auto [colon, bad_token] = std::from_chars(at, end, bias.token);
    if (bad_token != std::errc() || colon == end || *colon != ':') break;
    const auto [next, bad_bias] = std::from_chars(colon + 1, end, bias.bias);
    if (bad_bias != std::errc() || (next < end && *next != ',')) break;
    biases.push_back(bias);
    at = next < end ? next + 1 : next;
    if (next < end && at == end) break;
    if (next == end) return biases;
  }
  if (text.empty()) return biases;
  return InvalidArgumentError(
      fmt::format("--logit-bias must be TOKEN:BIAS,TOKEN:BIAS.., such as 15:-2.5,16:-inf; found '{}'", text));
}

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

void AddSamplingFlags(CLI::App& verb, SamplingFlags& flags) {
  verb.add_option("--max-tokens", flags.max_tokens, "tokens to generate at most")->capture_default_str();
  verb.add_option("--temp", flags.temperature, "temperature; 0 = always the most probable token")
      ->capture_default_str();
  const char* const kGroup = "Sampling";
  verb.add_option("--top-k", flags.top_k, "sample among the k most probable; 0 = off")
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--top-p", flags.top_p, "sample among the most probable that reach p")
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--min-p", flags.min_p, "drop tokens less probable than this share of the best")
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--typical-p", flags.typical_p, "sample among the least surprising that reach p")
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--repetition-penalty", flags.repetition_penalty, "above 1: tokens that came get less likely")
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--presence-penalty", flags.presence_penalty, "taken from the logits of tokens in the output")
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--frequency-penalty", flags.frequency_penalty, "the same, times how often they came")
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--logit-bias", flags.logit_bias, "added to logits: TOKEN:BIAS,.. (-inf: never)")->group(kGroup);
  verb.add_option("--seed", flags.seed, "same seed, same text")->capture_default_str()->group(kGroup);
  verb.add_option("--logprobs", flags.logprobs, "with --json: log probabilities, and of so many best tokens; -1 = none")
      ->capture_default_str()
      ->group(kGroup);
  const char* const kEnd = "Where the text ends";
  verb.add_option("--stop", flags.stops, "end the text before this string; may be given several times")
      ->allow_extra_args(false)
      ->group(kEnd);
  verb.add_option("--stop-ids", flags.stop_ids, "token ids that end the text, separated by commas")->group(kEnd);
  verb.add_option("--min-tokens", flags.min_tokens, "pick no end token before so many")
      ->capture_default_str()
      ->group(kEnd);
  verb.add_flag("--ignore-eos", flags.ignore_eos, "do not stop at the model's end tokens")->group(kEnd);
}

Result<TextOptions> MakeTextOptions(const SamplingFlags& flags) {
  TextOptions options;
  options.stops = flags.stops;
  GenerateOptions& generate = options.generate;
  ASSIGN_OR_RETURN(generate.max_tokens, InRange("--max-tokens", flags.max_tokens, 1, kMostTokens));
  ASSIGN_OR_RETURN(generate.min_tokens, InRange("--min-tokens", flags.min_tokens, 0, kMostTokens));
  ASSIGN_OR_RETURN(generate.logprobs, InRange("--logprobs", flags.logprobs, -1, kMostTokens));
  ASSIGN_OR_RETURN(generate.sampling.logit_bias, ParseBiases(flags.logit_bias));
  ASSIGN_OR_RETURN(generate.sampling.seed, ParseSeed(flags.seed));
  if (!flags.stop_ids.empty()) {
    ASSIGN_OR_RETURN(generate.stop_ids, ParseTokenIds(flags.stop_ids, "--stop-ids"));
  }
  generate.sampling.temperature = flags.temperature;
  generate.sampling.top_k = flags.top_k;
  generate.sampling.top_p = flags.top_p;
  generate.sampling.min_p = flags.min_p;
  generate.sampling.typical_p = flags.typical_p;
  generate.sampling.repetition_penalty = flags.repetition_penalty;
  generate.sampling.presence_penalty = flags.presence_penalty;
  generate.sampling.frequency_penalty = flags.frequency_penalty;
  generate.ignore_eos = flags.ignore_eos;
  return options;
}

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
    ASSIGN_OR_RETURN(generate.sampling.top_k, InRange("\"top_k\"", count, 0, kMostTokens));
  } else if (name == "seed") {
    ASSIGN_OR_RETURN(const int64_t seed, IntegerOf(name, value));
    generate.sampling.seed = static_cast<uint64_t>(seed);
  } else if (name == "stop") {
    ASSIGN_OR_RETURN(options.stops, StringsOf(name, value));
  } else if (name == "stop_ids") {
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

}  // namespace nunspark::cli
