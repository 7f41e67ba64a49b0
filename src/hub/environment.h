// Where downloads come from and where they lie, by the environment variables of huggingface_hub, so that every tool on
// a machine shares one cache.
#ifndef NUNSPARK_HUB_ENVIRONMENT_H_
#define NUNSPARK_HUB_ENVIRONMENT_H_

#include <functional>
#include <string>

#include "nunspark/status.h"

namespace nunspark {

struct HubEnvironment {
  std::string cache;  // HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache/..
  std::string endpoint;  // HF_ENDPOINT, without a slash at its end
  std::string token;     // HF_TOKEN, else the content of HF_TOKEN_PATH or HF_HOME/token; "": none
  bool offline = false;  // HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE
};

// The value of a variable; nullptr: not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;

// Errors: kInvalidArgument for an endpoint that is no http or https address, and for a token with characters that no
// token has; kNotFound when no variable says where a home folder would be; kPermission, kIo for the token's file.
Result<HubEnvironment> ReadHubEnvironment(const EnvironmentLookup& lookup);
Result<HubEnvironment> ReadHubEnvironment();

// "https://host[:port][/path]" without a slash at its end. Errors: kInvalidArgument, with `what` in front.
Result<std::string> CheckEndpoint(std::string_view endpoint, std::string_view what);

}  // namespace nunspark

#endif  // NUNSPARK_HUB_ENVIRONMENT_H_
