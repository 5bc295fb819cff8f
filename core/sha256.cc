#include "core/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "kernels/check.h"

namespace lockstep {
namespace {

void check(int status) {
  if (status != 1) throw Error("SHA-256 failed in OpenSSL");
}

}  // namespace

struct Sha256::Context {
  Context() : digest(EVP_MD_CTX_new(), EVP_MD_CTX_free) {}
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  check(context_->digest ? EVP_DigestInit_ex(context_->digest.get(), EVP_sha256(), nullptr) : 0);
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_->digest.get(), bytes.data(), bytes.size()));
}

void Sha256::update(const std::string& text) {
  update(std::as_bytes(std::span(text)));
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  check(EVP_DigestFinal_ex(context_->digest.get(), digest.data(), &length));
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string weights_sha256(const std::vector<Tensor>& parameters) {
  Sha256 digest;
  for (const Tensor& parameter : parameters) {
    const std::vector<float> values = parameter.to_host<float>();
    digest.update(std::as_bytes(std::span(values)));
  }
  return digest.hex();
}

}  // namespace lockstep
