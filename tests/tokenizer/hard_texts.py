"""Texts that are hard for tokenizers."""
import random
import sys
import unicodedata

HARD = [
    "", " ", "  ", "   ", "a", " a", "a ", "  a  b  ", "a" + " " * 50 + "b", " " * 300, "\t", "\t\ta\r\n", "\r", "\n", "\n\n", "\r\n\r\n",
    "\n\n\n a\n",
    " \n \n", "a\nb", "a\n\nb ", "a \n", "a  \n  b", "x\0y", "\0", "\0\0", "\x01\x7f", "\x85", "a\x85b", "\u2581", "a\u2581b",
    "\u2581\u2581 \u2581", " \u2581",
    "</s>", "<s>", "<unk>", "a</s>b", "</s></s>", " </s> ", "<</s>>", "</s", "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|><|endoftext|>",
    "<|begin_of_text|>x<|end_of_text|>", "<0x41>", "<0x0A>", "a<0xE2>b", "<0x", "<0x41><0x42>", "<tool>", "a <tool> b", "[word]", "a[word]b",
    "a [word] b", "[word][word]", "x  <left>  y", "<left><left>", "x  <right>  y", "<right> <right>", "in Zürich.", "Zu\u0308rich", "ZÜRICH",
    "é", "e\u0301", "a\u0301\u0302\u0303", "\u0301a", "q\u0307\u0323", "q\u0323\u0307", "ﬁ", "Ａ", "①②", "½", "ñandú", "straße STRASSE", "İi",
    "ǅ", "ΑΣ Σ ΑΣΑ",
    "日本語", "日本語 テスト", "漢字かな交じり文。", "中文，标点！", "한국어 텍스트", "\u1112\u1161\u11ab\u1100\u1173\u11af", "ᄒ", "العربية", "مَرْحَبًا بِكُمْ", "עִבְרִית",
    "हिन्दी में", "ไทยภาษา", "தமிழ்",
    "😀", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "👍🏽", "❤️", "a\u200db", "a\u200cb", "\ufeff", "\ufefftext", "\u00a0", "a\u00a0b", "\u3000", "a\u3000b", "\u200b",
    "a\u200bb", "\u2028",
    "\u2029", "\u180e", "a\u180eb", "\u1680", "\u202f", "\u205f", "\u00ad", "\ufffd", "\ufffe", "\U0010ffff", "\ue000", "𝔘𝔫𝔦", "K\u212a",
    "ſ 'ſ 'S 's", "𐐀𐐨", "🄰",
    "don't", "DON'T I'LL we've You'RE", "'s't're've'm'll'd", "'S'T'RE'VE'M'LL'D", "it’s", "''", "' s",
    "1234567890", "1,234,567.89", "3.14159e-10", "12 345", "١٢٣٤٥", "১২৩", "Ⅻ", "x² + y³", "2024-01-31T12:34:56Z", "1st 2nd", "0x7FFF",
    "The quick brown fox", "the the the the", "aaaaaaaaaaaaaaaa", "ababababab", "----------", "==========", "!!!???...", "#$%&*", "a-b_c",
    "foo_bar(baz)[0] = {1: 2};", "if (x < 3) {\n\ty += 1;\n}\n\treturn;", "def f():\n    return  1\n\n\n", "<html></s></html>",
    "http://a.b/c?d=e&f=g#h", "$$\\frac{a}{b}$$",
    "C:\\path\\to", "“quoted”", "a—b", "…", "CamelCaseWord HTTPServer iPhone", "Ünïcödé ÀÉÎ", "x\ty\tz", "end.  Start", "a\r\nb\r\n",
    "\u0b95\u0bcd\u0bb7",
    "\u0378", "\U000e0001", "\u1e9e", "\ua7dc", "\U00010d50", "\U0001e5d0",  # unassigned, a tag, capital sharp s, and characters of Unicode 16
]
WORDS = "the and of to in a is that for it with as was on be by are this from or an which you have not had at but his they all we her she".split()
ALPHABETS = ["abcdefghij ", "theandofr  .,\n", "aab ", " \n\t\r", "<>/s0x41unkF|[]", "\u2581 a\u2585", "éüñß日本語😀 a", "-=`*#|_ ", "0123456789., ",
             "'sStTrReEvVmMlLdD", "e\u0301\u0302\u0323a", "한국\u1112\u1161\u11ab", "\u00a0\u3000\u2028\u200b\ufeff\x85 a", "ABCdefGHI",
             "\0\x01\x7f a"]
TOKENS = ["<|endoftext|>", "</s>", "<s>", "<unk>", "<|im_end|>", "<tool>", "[word]", "<left>", "<right>", "Zürich", "<0x41>", "[EOS]"]


def any_character(draw):
    while True:
        code_point = draw.randrange(sys.maxunicode + 1) if draw.random() < 0.3 else draw.randrange(0x3400)
        if unicodedata.category(chr(code_point)) not in ("Cs", "Co", "Cn"):
            return chr(code_point)


def random_texts(count, seed=11):
    draw = random.Random(seed)
    for _ in range(count):
        pieces = []
        for _ in range(draw.randrange(1, 6)):
            kind = draw.random()
            if kind < 0.35:
                pieces.append(" ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 6))))
            elif kind < 0.75:
                alphabet = draw.choice(ALPHABETS)
                pieces.append("".join(draw.choice(alphabet) for _ in range(draw.randrange(1, 12))))
            elif kind < 0.85:
                pieces.append(draw.choice(TOKENS))
            else:
                pieces.append("".join(any_character(draw) for _ in range(draw.randrange(1, 8))))
        yield "".join(pieces)


def long_texts():
    draw = random.Random(3)
    yield "a" * 1_000_000
    yield "".join(draw.choice("abcdefgh") for _ in range(1_000_000))
    yield "".join(draw.choice("日本語中文字") for _ in range(300_000))
    yield " " * 300_000
    yield "\n" * 100_000
    yield "!?" * 200_000
