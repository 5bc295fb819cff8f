#include "hostcuda/src/runtime/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <span>
#include <string_view>

namespace hostcuda {
namespace {

// The executable's file, mapped for the life of the process.
std::span<const std::byte> map_executable() {
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (file < 0) return {};
  void* memory = MAP_FAILED;
  if (fstat(file, &status) == 0)
    memory = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (memory == MAP_FAILED) return {};
  return {static_cast<const std::byte*>(memory), static_cast<size_t>(status.st_size)};
}

struct SymbolTable {
  std::span<const ElfW(Sym)> symbols;
  const char* names = nullptr;
  size_t initialised_bytes = 0;  // of thread-local storage, at its front
};

SymbolTable read_symbols() {
  SymbolTable table;
  const auto file = map_executable();
  if (file.size() < sizeof(ElfW(Ehdr))) return table;
  const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(file.data());
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(file.data() + header.e_phoff);
  for (int i = 0; i < header.e_phnum; ++i)
    if (segments[i].p_type == PT_TLS) table.initialised_bytes = segments[i].p_filesz;
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(file.data() + header.e_shoff);
  for (int i = 0; i < header.e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    table.symbols = {reinterpret_cast<const ElfW(Sym)*>(file.data() + sections[i].sh_offset),
                     sections[i].sh_size / sizeof(ElfW(Sym))};
    table.names = reinterpret_cast<const char*>(file.data() + sections[sections[i].sh_link].sh_offset);
  }
  return table;
}

const SymbolTable& table() {
  static const SymbolTable symbols = read_symbols();
  return symbols;
}

// The first object of the process, which is the executable, as the calling thread sees it.
dl_phdr_info executable() {
  dl_phdr_info found{};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        *static_cast<dl_phdr_info*>(result) = *info;
        return 1;
      },
      &found);
  return found;
}

// __shared__ is `static thread_local` and never initialised. Variables inside functions are mangled as _ZZ;
// hostcuda's own and the libraries' are none of ours. (Other host code must keep none: checked mode would
// poison it.)
bool is_shared_variable(const ElfW(Sym) & symbol, std::string_view name) {
  if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_value < table().initialised_bytes) return false;
  if (!name.starts_with("_ZZ")) return false;
  for (const char* owner : {"_ZZN8hostcuda", "_ZZNK8hostcuda", "_ZZNSt", "_ZZSt", "_ZZN7testing", "_ZZN3fmt"})
    if (name.starts_with(owner)) return false;
  return true;
}

std::string symbol_that_holds(const void* address, unsigned char type) {
  const auto value = reinterpret_cast<uintptr_t>(address) - executable().dlpi_addr;
  if (table().names == nullptr) return {};
  for (const auto& symbol : table().symbols)
    if (ELF64_ST_TYPE(symbol.st_info) == type && value - symbol.st_value < symbol.st_size)
      return table().names + symbol.st_name;
  return {};
}

}  // namespace

std::string symbol_at(const void* address) {
  const auto value = reinterpret_cast<uintptr_t>(address) - executable().dlpi_addr;
  for (const auto& symbol : table().symbols)
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value == value)
      return table().names + symbol.st_name;
  return {};
}

std::vector<Range> static_shared_variables() {
  std::vector<Range> ranges;
  auto* storage = static_cast<std::byte*>(executable().dlpi_tls_data);
  if (storage == nullptr) return ranges;
  for (const auto& symbol : table().symbols)
    if (is_shared_variable(symbol, table().names + symbol.st_name))
      ranges.push_back({storage + symbol.st_value, symbol.st_size, table().names + symbol.st_name});
  return ranges;
}

std::string symbol_around(const void* address) {
  return symbol_that_holds(address, STT_FUNC);
}

std::string variable_around(const void* address) {
  return symbol_that_holds(address, STT_OBJECT);
}

uintptr_t load_address() {
  return executable().dlpi_addr;
}

Range thread_storage() {
  const dl_phdr_info info = executable();
  for (int i = 0; i < info.dlpi_phnum; ++i)
    if (info.dlpi_phdr[i].p_type == PT_TLS && info.dlpi_tls_data != nullptr)
      return {static_cast<std::byte*>(info.dlpi_tls_data), info.dlpi_phdr[i].p_memsz};
  return {};
}

Range writable_variables() {
  const dl_phdr_info info = executable();
  for (int i = 0; i < info.dlpi_phnum; ++i)
    if (info.dlpi_phdr[i].p_type == PT_LOAD && (info.dlpi_phdr[i].p_flags & PF_W) != 0)
      return {reinterpret_cast<std::byte*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr),
              info.dlpi_phdr[i].p_memsz};
  return {};
}

}  // namespace hostcuda
