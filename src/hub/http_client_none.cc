// Of builds without libcurl (NUNSPARK_DOWNLOADS=OFF): every request is refused; what is in the cache is used all the
// same.
#include "hub/http_client.h"

namespace nunspark {

struct HttpClient::Impl {};

std::string OriginOf(const std::string& url) { return url; }

std::string PercentEncode(std::string_view text, Slashes) { return std::string(text); }

HttpClient::HttpClient(HttpOptions) {}
HttpClient::~HttpClient() = default;

HttpAnswer HttpClient::Get(const HttpRequest&, const HttpSink&) {
  return {.status = UnsupportedError("this build of nunspark cannot download (it was built without libcurl); fetch the "
                                     "model with another tool that fills the Hugging Face cache, or give a folder"),
          .head = {}};
}

}  // namespace nunspark
