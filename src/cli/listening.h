// What the verbs that listen share.
#ifndef NUNSPARK_CLI_LISTENING_H_
#define NUNSPARK_CLI_LISTENING_H_

#include <string>
#include <vector>

#include "nunspark/status.h"

namespace CLI {
class App;
}

namespace nunspark::cli {

// The keys of --api-key-file: a key a line; what follows a '#' is a remark. None for an empty path. Errors: those of
// reading; kInvalidArgument when there is no key.
Result<std::vector<std::string>> ReadKeys(const std::string& path);

// Refuses empty values of every option: they come of variables that are not set, and would turn off what was asked for.
void RefuseEmptyValues(CLI::App& verb);

// "http://127.0.0.1:8080", "http://[::1]:8080".
std::string AddressOf(const std::string& host, int port);

// Until Ctrl-C.
void WaitForInterrupt();

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_LISTENING_H_
