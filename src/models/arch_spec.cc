#include "models/arch_spec.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace nunspark {
namespace {

// Levenshtein distance; names are short.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
    }
  }
  return row[b.size()];
}

}  // namespace

Result<const ArchSpec*> FindArch(std::string_view model_type) {
  std::string known;
  std::string_view closest;
  size_t closest_distance = SIZE_MAX;
  for (const ArchSpec* spec : SupportedArchs()) {
    if (spec->name == model_type) return spec;
    known += (known.empty() ? "" : ", ") + std::string(spec->name);
    const size_t distance = EditDistance(spec->name, model_type);
    if (distance < closest_distance) {
      closest_distance = distance;
      closest = spec->name;
    }
  }
  std::string message =
      fmt::format("model type '{}' is not supported; supported types: {}", model_type.substr(0, 100), known);
  if (closest_distance <= 3) message += fmt::format("; the closest match is {}", closest);
  return UnsupportedError(std::move(message));
}

}  // namespace nunspark
