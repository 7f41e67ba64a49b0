#include "server/access.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/ascii.h"

namespace nunspark::server {
namespace {

bool SameKey(std::string_view a, std::string_view b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < b.size(); ++i) {
    different |= static_cast<unsigned char>(b[i]) ^ static_cast<unsigned char>(i < a.size() ? a[i] : 0);
  }
  return different == 0;
}

std::string_view KeyOf(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view authorization = request.Header("authorization");
  if (authorization.starts_with(kBearer)) return authorization.substr(kBearer.size());
  return request.Header("x-api-key");
}

// "name:8000" -> "name", "[::1]:8000" -> "[::1]".
std::string_view WithoutPort(std::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon == std::string_view::npos || host.find(']', colon) != std::string_view::npos) return host;
  return host.substr(0, colon);
}

// A browser takes these for addresses and asks no name server. "1" and "0x7f.1" are left out on purpose.
bool IsAddress(std::string_view host) {
  if (host.starts_with('[')) {
    return host.ends_with(']') && host.find_first_not_of("0123456789abcdefABCDEF:.[]") == std::string_view::npos;
  }
  return std::count(host.begin(), host.end(), '.') == 3 &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

bool HasKey(const HttpRequest& request, const std::vector<std::string>& keys) {
  if (keys.empty()) return true;
  const std::string_view key = KeyOf(request);
  bool allowed = false;
  for (const std::string& known : keys) allowed |= SameKey(key, known);
  return allowed;
}

bool IsLoopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

std::optional<std::string> ForeignPage(const HttpRequest& request, const std::vector<std::string>& hosts) {
  const std::string_view host = request.Header("host");
  const std::string name = AsciiLower(WithoutPort(host));
  if (name != "localhost" && !IsAddress(name) && std::find(hosts.begin(), hosts.end(), name) == hosts.end()) {
    return fmt::format("the host '{}' is not known here; ask by address or as localhost, or start with --allow-host {}",
                       name, name.empty() ? "NAME" : name);
  }
  const std::string_view origin = request.Header("origin");
  if (!origin.empty() && origin != fmt::format("http://{}", host) && origin != fmt::format("https://{}", host)) {
    return fmt::format("pages from {} may not ask this server", origin);
  }
  const std::string_view site = request.Header("sec-fetch-site");
  if (!site.empty() && site != "same-origin" && site != "none") return "pages of other sites may not ask this server";
  return std::nullopt;
}

}  // namespace nunspark::server
