// The one API that differs between oneDNN 2 and oneDNN 3 for us.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace shiftron {

// Throws dnnl::error with dnnl_unimplemented if the processor has no such product.
inline dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                                    const dnnl::memory::desc& b, const dnnl::memory::desc& c,
                                                    const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

}  // namespace shiftron
