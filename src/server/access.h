// Who may ask: keys, and which pages of a browser.
#ifndef NUNSPARK_SERVER_ACCESS_H_
#define NUNSPARK_SERVER_ACCESS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace nunspark::server {

// Whether a request has one of `keys` ("Authorization: Bearer KEY" or "x-api-key: KEY"); true where there are none.
// Takes as long for any two keys of a length, so that time tells nothing about them.
bool HasKey(const HttpRequest& request, const std::vector<std::string>& keys);

// "localhost", "::1" and 127.0.0.0/8.
bool IsLoopback(const std::string& host);

// Why a request is refused that a web page from elsewhere may have made; nullopt: it is not. A page of another site
// cannot hide its Origin, and a name of its own that it points at this machine (DNS rebinding) shows in Host: that must
// be an address, localhost, or one of `hosts`. Programs send no Origin and pass.
std::optional<std::string> ForeignPage(const HttpRequest& request, const std::vector<std::string>& hosts);

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_ACCESS_H_
