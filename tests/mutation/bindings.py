"""libclang's Python bindings: those of this Python, or those of Debian's package python3-clang-14, which any Python 3 can use."""
import sys

try:
    from clang.cindex import Config, CursorKind, Index, TranslationUnit, TypeKind
except ImportError:
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        from clang.cindex import Config, CursorKind, Index, TranslationUnit, TypeKind
    finally:
        sys.path.remove("/usr/lib/python3/dist-packages")

__all__ = ["Config", "CursorKind", "Index", "TranslationUnit", "TypeKind"]
