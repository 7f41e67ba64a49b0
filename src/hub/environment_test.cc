#include "hub/environment.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace nunspark {
namespace {

using testing::HasSubstr;

Result<HubEnvironment> Read(const std::map<std::string, std::string>& variables) {
  return ReadHubEnvironment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(HubEnvironment, TheCacheIsWhereHuggingFaceHasIt) {
  EXPECT_EQ(Read({{"HOME", "/h"}})->cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(Read({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})->cache, "/x/huggingface/hub");
  EXPECT_EQ(Read({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "~/hf"}})->cache, "/h/hf/hub");
  EXPECT_EQ(Read({{"HF_HOME", "/hf"}, {"HUGGINGFACE_HUB_CACHE", "/old"}})->cache, "/old");
  EXPECT_EQ(Read({{"HUGGINGFACE_HUB_CACHE", "/old"}, {"HF_HUB_CACHE", "/new"}})->cache, "/new");
  EXPECT_EQ(Read({}).status().code(), StatusCode::kNotFound);
}

TEST(HubEnvironment, EndpointAndOfflineSwitch) {
  EXPECT_EQ(Read({{"HOME", "/h"}})->endpoint, "https://huggingface.co");
  EXPECT_EQ(Read({{"HOME", "/h"}, {"HF_ENDPOINT", "http://mirror:80/hf/"}})->endpoint, "http://mirror:80/hf");
  for (const char* wrong : {"mirror", "ftp://mirror", "https://", "https://a b", "https://user@mirror", "https:///x"}) {
    EXPECT_EQ(Read({{"HOME", "/h"}, {"HF_ENDPOINT", wrong}}).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
  EXPECT_FALSE(Read({{"HOME", "/h"}, {"HF_HUB_OFFLINE", "0"}})->offline);
  EXPECT_TRUE(Read({{"HOME", "/h"}, {"HF_HUB_OFFLINE", "Yes"}})->offline);
  EXPECT_TRUE(Read({{"HOME", "/h"}, {"TRANSFORMERS_OFFLINE", "1"}})->offline);
}

TEST(HubEnvironment, TheTokenComesFromItsVariableOrItsFile) {
  const TestFolder folder;
  folder.Write("token", "hf_file\n");
  const std::string other = folder.Write("other", "hf_other");
  EXPECT_EQ(Read({{"HF_HOME", folder.path()}})->token, "hf_file");
  EXPECT_EQ(Read({{"HF_HOME", folder.path()}, {"HF_TOKEN_PATH", other}})->token, "hf_other");
  EXPECT_EQ(Read({{"HF_HOME", folder.path()}, {"HF_TOKEN", " hf_set "}})->token, "hf_set");
  EXPECT_EQ(Read({{"HF_HOME", folder.path()}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}})->token, "");
  EXPECT_EQ(Read({{"HF_HOME", "/none"}})->token, "");
}

TEST(HubEnvironment, ATokenThatWouldBreakAHeaderIsRefused) {
  const Status status = Read({{"HOME", "/h"}, {"HF_TOKEN", "a\r\nHost: b"}}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("HF_TOKEN"));
  EXPECT_THAT(status.message(), testing::Not(HasSubstr("Host")));
}

}  // namespace
}  // namespace nunspark
