#include "server/web_assets.h"

namespace nunspark::server {
namespace {

constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

std::string_view TypeOf(std::string_view path) {
  if (path.ends_with(".html")) return "text/html; charset=utf-8";
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (path.ends_with(".css")) return "text/css; charset=utf-8";
  return "image/svg+xml";
}

}  // namespace

std::optional<HttpResponse> PageFile(const std::string& path) {
  const std::string_view wanted = path == "/" ? "/index.html" : std::string_view(path);
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    if (file.path != wanted) continue;
    return HttpResponse{.content_type = std::string(TypeOf(wanted)),
                        .body = std::string(file.content),
                        .headers = {{"Content-Security-Policy", std::string(kPolicy)},
                                    {"X-Content-Type-Options", "nosniff"},
                                    {"Referrer-Policy", "no-referrer"},
                                    {"Cross-Origin-Opener-Policy", "same-origin"},
                                    // A newer program has another page.
                                    {"Cache-Control", "no-cache"}}};
  }
  return std::nullopt;
}

}  // namespace nunspark::server
