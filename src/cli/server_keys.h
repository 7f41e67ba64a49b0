// What the verbs that serve have in common.
#ifndef NUNSPARK_CLI_SERVER_KEYS_H_
#define NUNSPARK_CLI_SERVER_KEYS_H_

#include <string>
#include <vector>

#include "nunspark/status.h"

namespace CLI {
class App;
}

namespace nunspark::cli {

// A key a line; what follows a '#' is a remark. None for an empty path. Errors: those of reading; kInvalidArgument when
// there is no key.
Result<std::vector<std::string>> ReadKeys(const std::string& path);

// Refuses empty values of every option: they come of variables that are not set, and would turn off what was asked for.
void RefuseEmptyValues(CLI::App& verb);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_SERVER_KEYS_H_
