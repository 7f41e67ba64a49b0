#include "cli/sampling_flags.h"

#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/in_range.h"
#include "cli/engine_flags.h"

namespace nunspark::cli {
namespace {

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
  RETURN_IF_ERROR(CheckStops(options.stops));
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

}  // namespace nunspark::cli
