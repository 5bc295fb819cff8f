#include "apps/common/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <memory>

#include "kernels/check.h"

namespace lockstep::apps {

std::string weights_sha256(const std::vector<Tensor>& parameters) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const Tensor& parameter : parameters) {
    const std::vector<float> values = parameter.to_host<float>();
    good = good && EVP_DigestUpdate(context.get(), values.data(), values.size() * sizeof(float)) == 1;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  good = good && EVP_DigestFinal_ex(context.get(), digest.data(), &length) == 1;
  if (!good) throw Error("SHA-256 over the weights failed in OpenSSL");
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace lockstep::apps
