#include "cli/server_keys.h"

#include <algorithm>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/ascii.h"
#include "base/read_file.h"

namespace nunspark::cli {
namespace {

constexpr int64_t kMostKeyBytes = 1 << 20;

}  // namespace

Result<std::vector<std::string>> ReadKeys(const std::string& path) {
  if (path.empty()) return std::vector<std::string>();
  ASSIGN_OR_RETURN(const std::string text,
                   ReadWholeFile(path, {.max_bytes = kMostKeyBytes, .limit_reason = "the largest file of keys"}));
  std::vector<std::string> keys;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    line = std::string(AsciiTrim(line.substr(0, line.find('#'))));
    if (!line.empty()) keys.push_back(std::move(line));
    begin = end + 1;
  }
  if (keys.empty()) return InvalidArgumentError(fmt::format("--api-key-file {} holds no key", path));
  return keys;
}

void RefuseEmptyValues(CLI::App& verb) {
  for (CLI::Option* const option : verb.get_options()) {
    if (option->get_expected_max() == 0) continue;
    option->check(
        CLI::Validator([](std::string& value) { return value.empty() ? "must not be empty" : ""; }, std::string()));
  }
}

}  // namespace nunspark::cli
