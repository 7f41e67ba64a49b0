// Server-sent events: what every stream of them begins with, and one event.
#ifndef NUNSPARK_SERVER_EVENT_STREAM_H_
#define NUNSPARK_SERVER_EVENT_STREAM_H_

#include <string>

#include "base/json.h"
#include "server/http.h"

namespace nunspark::server {

inline constexpr const char* kEventStream = "text/event-stream";

// Neither kept by caches nor held back by proxies (nginx).
inline Headers EventHeaders() { return {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}; }

inline std::string EventText(const Json& data) { return "data: " + WriteJson(data) + "\n\n"; }

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_EVENT_STREAM_H_
