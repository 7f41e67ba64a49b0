// docs/flags.md: every verb's flags, written by the tables that parse them.
#ifndef NUNSPARK_CLI_FLAGS_DOCUMENT_H_
#define NUNSPARK_CLI_FLAGS_DOCUMENT_H_

#include <string>

#include <CLI/CLI.hpp>

namespace nunspark::cli {

std::string FlagsDocument(const CLI::App& app);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_FLAGS_DOCUMENT_H_
