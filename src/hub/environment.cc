#include "hub/environment.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/ascii.h"
#include "io/file.h"

namespace nunspark {
namespace {

constexpr std::string_view kPublicEndpoint = "https://huggingface.co";

// Set and not empty.
std::optional<std::string> Variable(const EnvironmentLookup& lookup, const char* name) {
  const char* const value = lookup(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

bool IsTrue(const EnvironmentLookup& lookup, const char* name) {
  const std::string value = AsciiLower(Variable(lookup, name).value_or(""));
  return value == "1" || value == "on" || value == "yes" || value == "true";
}

// "~" and "~/..." as the shell has them.
std::string ExpandHome(const std::string& path, const std::optional<std::string>& home) {
  if (!home || (path != "~" && !path.starts_with("~/"))) return path;
  return *home + path.substr(1);
}

Result<std::string> ReadToken(const EnvironmentLookup& lookup, const std::string& token_path) {
  std::string token;
  std::string source = "HF_TOKEN";
  if (const auto value = Variable(lookup, "HF_TOKEN")) {
    token = *value;
  } else if (const auto old = Variable(lookup, "HUGGING_FACE_HUB_TOKEN")) {
    token = *old;
    source = "HUGGING_FACE_HUB_TOKEN";
  } else if (!token_path.empty() && FileExists(token_path)) {
    source = token_path;
    ASSIGN_OR_RETURN(token,
                     ReadRegularFile(token_path, {.max_bytes = 4096, .limit_reason = "more than any token has"}));
  }
  token = AsciiTrim(token);
  // It becomes part of a header.
  const bool printable = std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (!printable) {
    return InvalidArgumentError(fmt::format("{} holds characters that no token has; is it the right file?", source));
  }
  return token;
}

}  // namespace

Result<std::string> CheckEndpoint(std::string_view endpoint, std::string_view what) {
  std::string_view rest = endpoint;
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const std::string_view address = rest;
  if (AsciiLower(rest.substr(0, 8)) == "https://") {
    rest.remove_prefix(8);
  } else if (AsciiLower(rest.substr(0, 7)) == "http://") {
    rest.remove_prefix(7);
  } else {
    rest = "";
  }
  const bool plain = std::all_of(rest.begin(), rest.end(),
                                 [](char c) { return c > 0x20 && c < 0x7f && c != '@' && c != '?' && c != '#'; });
  if (rest.empty() || rest.front() == '/' || rest.front() == ':' || !plain) {
    return InvalidArgumentError(
        fmt::format("{}: '{}' is no address of a hub; expected https://host[:port][/path]", what, endpoint));
  }
  return std::string(address);
}

Result<HubEnvironment> ReadHubEnvironment(const EnvironmentLookup& lookup) {
  HubEnvironment result;
  const std::optional<std::string> home = Variable(lookup, "HOME");
  std::string hub_home;
  if (const auto value = Variable(lookup, "HF_HOME")) {
    hub_home = ExpandHome(*value, home);
  } else if (const auto xdg = Variable(lookup, "XDG_CACHE_HOME")) {
    hub_home = JoinPath(ExpandHome(*xdg, home), "huggingface");
  } else if (home) {
    hub_home = JoinPath(*home, ".cache/huggingface");
  }
  if (const auto value = Variable(lookup, "HF_HUB_CACHE")) {
    result.cache = ExpandHome(*value, home);
  } else if (const auto old = Variable(lookup, "HUGGINGFACE_HUB_CACHE")) {
    result.cache = ExpandHome(*old, home);
  } else if (!hub_home.empty()) {
    result.cache = JoinPath(hub_home, "hub");
  } else {
    return NotFoundError("no folder for downloaded models: set HF_HUB_CACHE, or HOME");
  }
  ASSIGN_OR_RETURN(
      result.endpoint,
      CheckEndpoint(Variable(lookup, "HF_ENDPOINT").value_or(std::string(kPublicEndpoint)), "HF_ENDPOINT"));
  result.offline = IsTrue(lookup, "HF_HUB_OFFLINE") || IsTrue(lookup, "TRANSFORMERS_OFFLINE");
  if (IsTrue(lookup, "HF_HUB_DISABLE_IMPLICIT_TOKEN")) return result;
  std::string token_path = hub_home.empty() ? "" : JoinPath(hub_home, "token");
  if (const auto value = Variable(lookup, "HF_TOKEN_PATH")) token_path = ExpandHome(*value, home);
  ASSIGN_OR_RETURN(result.token, ReadToken(lookup, token_path));
  return result;
}

Result<HubEnvironment> ReadHubEnvironment() {
  return ReadHubEnvironment([](const char* name) { return std::getenv(name); });
}

}  // namespace nunspark
