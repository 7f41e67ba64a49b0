#include "cli/listening.h"

#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/ascii.h"
#include "base/parts.h"
#include "base/read_file.h"
#include "cli/interrupt.h"

namespace nunspark::cli {
namespace {

constexpr int64_t kMostKeyBytes = 1 << 20;

}  // namespace

Result<std::vector<std::string>> ReadKeys(const std::string& path) {
  if (path.empty()) return std::vector<std::string>();
  ASSIGN_OR_RETURN(const std::string text,
                   ReadWholeFile(path, {.max_bytes = kMostKeyBytes, .limit_reason = "the largest file of keys"}));
  std::vector<std::string> keys;
  for (const std::string_view line : SplitAt(text, '\n')) {
    const std::string_view key = AsciiTrim(line.substr(0, line.find('#')));
    if (!key.empty()) keys.emplace_back(key);
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

std::string AddressOf(const std::string& host, int port) {
  if (host.find(':') != std::string::npos) return fmt::format("http://[{}]:{}", host, port);
  return fmt::format("http://{}:{}", host, port);
}

void WaitForInterrupt() {
  while (!Interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

}  // namespace nunspark::cli
