#include "weights/warm_start.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "formats/content_hash.h"

namespace nunspark {
namespace {

constexpr std::string_view kFirstLine = "nunspark warm start 1";
constexpr double kHalfLifePasses = 1000;
constexpr int64_t kMostUses = int64_t{1} << 40;

// Takes "NUMBER" and the character after it from the front of `text`.
bool TakeNumber(std::string_view& text, char end, int64_t least, int64_t most, int64_t& value) {
  const auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < least || value > most) return false;
  const auto length = static_cast<size_t>(after - text.data());
  if (length == text.size() || text[length] != end) return false;
  text.remove_prefix(length + 1);
  return true;
}

std::string Head(std::string_view model) { return fmt::format("{}\nmodel {}\n", kFirstLine, model); }

bool MoreUsed(const ExpertUses& a, const ExpertUses& b) {
  if (a.uses != b.uses) return a.uses > b.uses;
  return a.layer != b.layer ? a.layer < b.layer : a.expert < b.expert;
}

}  // namespace

Result<std::vector<ExpertUses>> ParseWarmStart(std::string_view text, std::string_view model, int32_t layers,
                                               int32_t experts) {
  // The last line is the checksum of all before it.
  const size_t end = text.size() < 2 ? std::string_view::npos : text.rfind('\n', text.size() - 2);
  if (end == std::string_view::npos || text.substr(end + 1) != ChecksumOf(text.substr(0, end + 1)) + "\n") {
    return DataLossError("the checksum is not that of the content");
  }
  std::string_view rest = text.substr(0, end + 1);
  if (!rest.starts_with(fmt::format("{}\n", kFirstLine))) {
    return DataLossError(fmt::format("expected '{}' in the first line", kFirstLine));
  }
  const std::string head = Head(model);
  if (!rest.starts_with(head)) return DataLossError("it is of another model, or the model's files have changed");
  rest.remove_prefix(head.size());
  std::vector<ExpertUses> uses;
  std::set<std::pair<int64_t, int64_t>> seen;
  while (!rest.empty()) {
    int64_t layer = 0, expert = 0, count = 0;
    const bool is_entry = TakeNumber(rest, ' ', 0, int64_t{layers} - 1, layer) &&
                          TakeNumber(rest, ' ', 0, int64_t{experts} - 1, expert) &&
                          TakeNumber(rest, '\n', 1, kMostUses, count);
    if (!is_entry || !seen.emplace(layer, expert).second) {
      return DataLossError(fmt::format("line {}: expected a layer below {}, an expert below {} and its uses, each once",
                                       uses.size() + 3, layers, experts));
    }
    uses.push_back({.layer = static_cast<int32_t>(layer), .expert = static_cast<int32_t>(expert), .uses = count});
  }
  std::sort(uses.begin(), uses.end(), MoreUsed);
  return uses;
}

std::string WriteWarmStart(std::string_view model, std::span<const ExpertUses> uses) {
  std::string text = Head(model);
  for (const ExpertUses& entry : uses) {
    if (entry.uses <= 0) continue;
    fmt::format_to(std::back_inserter(text), "{} {} {}\n", entry.layer, entry.expert, std::min(entry.uses, kMostUses));
  }
  return text + ChecksumOf(text) + "\n";
}

std::vector<ExpertUses> AddUses(std::span<const ExpertUses> earlier, std::span<const ExpertUses> run, int64_t passes) {
  const double weight = std::exp2(-static_cast<double>(std::max<int64_t>(passes, 0)) / kHalfLifePasses);
  std::map<std::pair<int32_t, int32_t>, int64_t> sums;
  for (const ExpertUses& entry : earlier) {
    sums[{entry.layer, entry.expert}] += std::llround(static_cast<double>(entry.uses) * weight);
  }
  for (const ExpertUses& entry : run) sums[{entry.layer, entry.expert}] += entry.uses;
  std::vector<ExpertUses> all;
  for (const auto& [expert, uses] : sums) {
    if (uses > 0) all.push_back({.layer = expert.first, .expert = expert.second, .uses = uses});
  }
  std::sort(all.begin(), all.end(), MoreUsed);
  return all;
}

}  // namespace nunspark
