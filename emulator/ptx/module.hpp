// SPDX-License-Identifier: Apache-2.0
// PTX, read once: kernels as lists of instructions whose operands are places in a warp's registers.
// Source of names and meanings: PTX ISA 9.0.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tilescope::gpu::emulator::ptx {

inline constexpr int kLanes = 32;

// clang-format off
enum class Type : std::uint8_t {
  pred,
  b8, u8, s8, e4m3, e5m2,
  b16, u16, s16, f16, bf16, e4m3x2, e5m2x2,
  b32, u32, s32, f32, tf32, f16x2, bf16x2, u16x2, s16x2,
  b64, u64, s64, f64,
  b128,
};
// clang-format on

/// Bytes of one value in memory; a predicate has none.
int bytes_of(Type type);

struct Operand {
  enum class Kind : std::uint8_t {
    none,      // `_`
    reg,       // also a special register that stays as it is while a thread lives, such as %tid.x
    constant,  // a number, or the address of a variable
    address,  // `[a + 4]`: elements[0] is a (register or constant), value is 4; `[a, {x, y}]`: elements[1] is
              // {x, y}
    vector,   // `{a, b}` and `a|b`
    label,    // offset is the index of the instruction to go on with
    clock,    // a special register that changes: value is a ptx::Clock
  };
  Kind kind = Kind::none;
  std::uint8_t bytes = 0;  // of a register's value: 2, 4, 8, or 0 for a predicate
  bool negated = false;    // `!p`
  std::uint32_t offset =
      0;                   // register: bytes into a warp's registers; constant: bytes into Kernel::constants
  std::int64_t value = 0;  // constant: its bits, integers with their sign; address: displacement
  std::vector<Operand> elements;
};

/// Special registers that change while a thread lives.
enum class Clock : std::uint8_t { clock, clock64, globaltimer };

/// A constant as 32 lanes read it, in each width: operands of both kinds are then read alike.
struct alignas(64) Constant {
  std::array<std::uint16_t, kLanes> half;
  std::array<std::uint32_t, kLanes> word;
  std::array<std::uint64_t, kLanes> pair;
};

/// A place in the source that PTX was compiled from, by .loc; line 0 where none is said.
struct SourcePlace {
  int file = 0;  // a number of Module::files
  int line = 0;
  auto operator<=>(const SourcePlace&) const = default;
};

struct Instruction {
  std::string_view opcode;                  // all of it: "cvt.rn.f16x2.f32"
  std::vector<std::string_view> modifiers;  // what follows the first word: "rn", "f16x2", "f32"
  std::vector<Type> types;                  // those of the modifiers that name types, in their order
  std::vector<Operand> operands;            // as written, results first
  Operand guard;                            // a predicate, or none
  int line = 0;                             // of the PTX text, from 1
  SourcePlace source;                       // of the innermost function
  std::vector<SourcePlace> inlined_at;      // where it was inlined, and where that was, outwards
  std::string_view text;
  std::string unknown;  // why it could not be read: line, reason and text; empty where it was

  bool has(std::string_view modifier) const;
  bool has_any(std::initializer_list<std::string_view> of) const;
  std::string_view word() const { return opcode.substr(0, opcode.find('.')); }  // as in "ld"
};

enum class Space : std::uint8_t { parameter, shared, local, global, constant };

struct Variable {
  std::string name;
  Space space = Space::global;
  Type type = Type::b8;     // of an element
  bool is_array = false;    // also a struct, which PTX has as an array of bytes
  std::uint64_t bytes = 0;  // 0: an array without bound, dynamic shared memory
  std::uint32_t align = 1;
  bool of_call = false;             // a parameter or a result of a function, in local memory
  std::uint64_t offset = 0;         // parameter, shared and local: in its space
  std::shared_ptr<std::byte> data;  // global and constant: the variable itself, which the module owns
};

/// A special register that a kernel reads: where the machine must write its values.
struct SpecialRegister {
  std::string name;  // "tid.x"
  std::uint32_t offset = 0;
};

/// A function that a kernel calls, or one that it calls. Its instructions stand behind the kernel's;
/// registers and local memory are its own, so that only one that calls itself has to save them.
struct Function {
  struct Registers {
    std::uint32_t offset = 0, count = 0;
    std::uint8_t bytes = 0;  // 0 of predicates
  };
  std::string name;
  std::uint64_t address = 0;                  // as kernels see it, the same in all of a module
  std::uint32_t entry = 0;                    // index of its first instruction
  std::vector<Variable> results, parameters;  // in local memory
  std::vector<Registers> registers;
  std::uint64_t local_begin = 0, local_end = 0;
  std::vector<std::size_t> calls;  // indices of functions
  bool calls_itself = false;       // through others too
};

/// Where, among addresses of parameters, those of calls begin: they lie in local memory.
inline constexpr std::uint64_t kCallParameters = 1 << 20;

struct Kernel {
  std::string name;
  std::vector<Variable> parameters;
  std::uint32_t parameter_bytes = 0;
  std::uint32_t register_bytes =
      0;  // of a warp: 128 of a 32-bit register, 4 of a predicate, whose bits are the lanes
  std::vector<SpecialRegister> specials;
  std::vector<Variable> shared;            // the module's and its own
  std::uint32_t static_shared_end = 0;     // offsets in shared memory: where static variables end,
  std::uint32_t dynamic_shared_begin = 0;  // and where the dynamic ones begin
  std::uint32_t local_bytes = 0;           // of a thread
  std::uint32_t max_threads = 1024;        // .maxntid
  std::uint32_t max_cluster = 16;          // .maxclusterrank [CTAs]
  std::array<std::uint32_t, 3> required_threads{},
      required_cluster{};  // .reqntid, .reqnctapercluster; 0: any
  std::vector<Constant> constants;
  std::vector<Function> functions;
  std::vector<Instruction> instructions;
};

struct Module {
  std::shared_ptr<const std::string> source;  // what the string views look at
  std::string target;                         // "sm_90a"
  std::map<int, std::string> files;           // by .file's number, their paths
  std::vector<Variable> variables;            // .global and .const
  std::vector<std::unique_ptr<Kernel>> kernels;

  const Kernel* find(std::string_view name) const;
};

/// The first bytes of shared memory, which the system keeps for itself on sm_90: no variable has address 0.
inline constexpr std::uint32_t kSharedBegin = 1024;

/// Reads a module. Throws std::runtime_error with the line and its text at what it does not know.
Module parse(std::string_view text);

}  // namespace tilescope::gpu::emulator::ptx
