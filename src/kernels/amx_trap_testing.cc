// Tile instructions as the compiler wrote them, decoded and done by the model.
#include "kernels/amx_testing.h"

#if defined(__x86_64__)
#include <csignal>
#include <cstring>

#include <ucontext.h>

#include "kernels/amx_model.h"

namespace nunspark::internal {
namespace {

// By their numbers in instructions.
constexpr int kRegisters[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

// VEX.128.0F38.W0, then ModRM, SIB and displacement as far as there are such.
class Instruction {
 public:
  Instruction(const uint8_t* code, const greg_t* registers) : code_(code), registers_(registers) {}

  bool HasPrefix() const { return code_[0] == 0xc4 && (code_[1] & 0x1f) == 2 && (code_[2] & 0x84) == 0; }
  int Prefix() const { return code_[2] & 3; }  // none, 66, F3, F2
  uint8_t Opcode() const { return code_[3]; }
  bool IsOfRegisters() const { return Mod() == 3; }
  int Reg() const { return code_[4] >> 3 & 7; }
  int Rm() const { return code_[4] & 7; }
  int Third() const { return ~(code_[2] >> 3) & 15; }
  bool HasSib() const { return Mod() != 3 && Rm() == 4; }

  int Bytes() const {
    int bytes = HasSib() ? 6 : 5;
    if (Mod() == 1) bytes += 1;
    if (Mod() == 2 || (Mod() == 0 && Base() == 5)) bytes += 4;
    return bytes;
  }
  // Without the index.
  uint8_t* Address() const {
    int64_t address = Displacement();
    if (Mod() == 0 && Rm() == 5) {
      address += reinterpret_cast<int64_t>(code_) + Bytes();
    } else if (Mod() != 0 || Base() != 5) {
      address += registers_[kRegisters[Base() + ((code_[1] & 0x20) == 0 ? 8 : 0)]];
    }
    return reinterpret_cast<uint8_t*>(address);
  }
  int64_t Index() const {
    const int index = (code_[5] >> 3 & 7) + ((code_[1] & 0x40) == 0 ? 8 : 0);
    return index == 4 ? 0 : registers_[kRegisters[index]] * (1 << (code_[5] >> 6));
  }

 private:
  int Mod() const { return code_[4] >> 6; }
  int Base() const { return HasSib() ? code_[5] & 7 : Rm(); }
  int64_t Displacement() const {
    const uint8_t* const at = code_ + (HasSib() ? 6 : 5);
    if (Bytes() == (HasSib() ? 6 : 5)) return 0;
    if (Mod() == 1) return static_cast<int8_t>(*at);
    int32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }

  const uint8_t* code_;
  const greg_t* registers_;
};

// False: it is none of those that are used here.
bool Execute(const Instruction& i) {
  TileModel& tiles = ThisThreadsTiles();
  if (!i.HasPrefix()) return false;
  switch (i.Opcode() << 8 | i.Prefix() << 4 | (i.IsOfRegisters() ? 1 : 0)) {
    case 0x4900: {
      if (i.Reg() != 0) return false;
      TileConfig config;
      std::memcpy(&config, i.Address() + (i.HasSib() ? i.Index() : 0), sizeof config);
      tiles.Configure(config);
      return true;
    }
    case 0x4901: tiles.Release(); return i.Reg() == 0 && i.Rm() == 0;
    case 0x4931: tiles.Zero(i.Reg()); return i.Rm() == 0;
    case 0x4b30: tiles.Load(i.Reg(), i.Address(), i.Index()); return i.HasSib();
    case 0x4b20: tiles.Store(i.Reg(), i.Address(), i.Index()); return i.HasSib();
    case 0x5e21: tiles.Dot(i.Reg(), i.Rm(), i.Third()); return true;
    default: return false;
  }
}

void OnIllegalInstruction(int, siginfo_t*, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const Instruction instruction(reinterpret_cast<const uint8_t*>(registers[REG_RIP]), registers);
  if (!Execute(instruction)) {
    std::signal(SIGILL, SIG_DFL);  // and it is met again
    return;
  }
  registers[REG_RIP] += instruction.Bytes();
}

}  // namespace

void CatchTileInstructions() {
  struct sigaction action {};
  action.sa_sigaction = OnIllegalInstruction;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  CHECK(::sigaction(SIGILL, &action, nullptr) == 0);
}

}  // namespace nunspark::internal
#else
void nunspark::internal::CatchTileInstructions() {}
#endif
