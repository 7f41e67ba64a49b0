#include "cli/verbs.h"

int main(int argc, char** argv) { return nunspark::cli::RunCommandLine(argc, argv); }
