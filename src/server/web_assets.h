// The page: files of web/, inside the program.
#ifndef NUNSPARK_SERVER_WEB_ASSETS_H_
#define NUNSPARK_SERVER_WEB_ASSETS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/http.h"

namespace nunspark::server {

struct EmbeddedFile {
  std::string_view path;  // "/app.js"
  std::string_view content;
};

// All of them.
std::span<const EmbeddedFile> EmbeddedFiles();

// The answer to GET of a file of the page, "/" being "/index.html", with a content-security policy that lets the page
// load nothing from elsewhere and no other site frame it; nullopt: there is no such file.
std::optional<HttpResponse> PageFile(const std::string& path);

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_WEB_ASSETS_H_
