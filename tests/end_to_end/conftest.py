from tests.end_to_end.real_parts import parts

__all__ = ["parts"]
