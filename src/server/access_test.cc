#include "server/access.h"

#include <gtest/gtest.h>

namespace nunspark::server {
namespace {

HttpRequest With(Headers headers) {
  return {.method = "GET", .path = "/api/jobs", .query = {}, .headers = std::move(headers), .body = {}};
}

TEST(Access, PagesOfOtherSitesAreRefusedWhateverNameTheyUse) {
  const auto foreign = [](Headers headers) { return ForeignPage(With(std::move(headers)), {"box.lan"}).has_value(); };
  for (const char* host : {"localhost:8000", "127.0.0.1:8000", "127.0.0.1", "[::1]:8000", "[::1]", "192.168.1.4:80",
                           "box.lan:8000", "BOX.lan"}) {
    EXPECT_FALSE(foreign({{"host", host}})) << host;
  }
  // Names that a site may point at this machine.
  for (const char* host : {"evil.example:8000", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "",
                           "1.2.3", "box.lan.evil.example"}) {
    EXPECT_TRUE(foreign({{"host", host}})) << host;
  }
  EXPECT_TRUE(foreign({}));
  EXPECT_FALSE(foreign({{"host", "localhost:8000"}, {"origin", "http://localhost:8000"}}));
  EXPECT_FALSE(foreign({{"host", "box.lan"}, {"origin", "https://box.lan"}, {"sec-fetch-site", "same-origin"}}));
  for (const char* origin : {"http://evil.example", "null", "http://localhost:3000", "http://localhost"}) {
    EXPECT_TRUE(foreign({{"host", "localhost:8000"}, {"origin", origin}})) << origin;
  }
  EXPECT_TRUE(foreign({{"host", "localhost:8000"}, {"sec-fetch-site", "cross-site"}}));
  EXPECT_FALSE(foreign({{"host", "localhost:8000"}, {"sec-fetch-site", "none"}}));
}

TEST(Access, OneOfTheKeysIsNeededWhereThereAreSome) {
  const std::vector<std::string> keys = {"one", "another"};
  EXPECT_TRUE(HasKey(With({}), {}));
  EXPECT_TRUE(HasKey(With({{"authorization", "Bearer another"}}), keys));
  EXPECT_TRUE(HasKey(With({{"x-api-key", "one"}}), keys));
  for (const char* key : {"", "on", "ones", "one ", "two"}) EXPECT_FALSE(HasKey(With({{"x-api-key", key}}), keys));
}

}  // namespace
}  // namespace nunspark::server
