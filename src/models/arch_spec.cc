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

// The names by which checkpoints of the naming know a type.
std::vector<std::string_view> NamesOf(const ArchSpec& spec, Naming naming) {
  if (naming == Naming::kGguf) return {spec.gguf.begin(), spec.gguf.end()};
  std::vector<std::string_view> names = {spec.name};
  names.insert(names.end(), spec.aliases.begin(), spec.aliases.end());
  return names;
}

}  // namespace

Result<const ArchSpec*> FindArch(std::string_view model_type, Naming naming) {
  std::string known;
  std::string_view closest;
  size_t closest_distance = SIZE_MAX;
  for (const ArchSpec* spec : SupportedArchs()) {
    for (const std::string_view name : NamesOf(*spec, naming)) {
      if (name == model_type) return spec;
      known += (known.empty() ? "" : ", ") + std::string(name);
      const size_t distance = EditDistance(name, model_type);
      if (distance < closest_distance) {
        closest_distance = distance;
        closest = name;
      }
    }
  }
  std::string message =
      fmt::format("{} '{}' is not supported; supported: {}",
                  naming == Naming::kGguf ? "GGUF architecture" : "model type", model_type.substr(0, 100), known);
  // A third of the letters wrong is no longer a slip of the pen.
  if (closest_distance <= std::max<size_t>(3, model_type.size() / 3)) {
    message += fmt::format("; the closest match is {}", closest);
  }
  return UnsupportedError(std::move(message));
}

}  // namespace nunspark
