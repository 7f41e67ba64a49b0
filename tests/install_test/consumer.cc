// What a program needs of the installed package: headers it can include, an archive it can link.
#include <cstdio>

#include "nunspark/status.h"

int main() {
  nunspark::Status status(nunspark::StatusCode::kNotFound, "no such model");
  if (status.ok()) return 1;
  std::printf("%s\n", status.message().c_str());
  return 0;
}
