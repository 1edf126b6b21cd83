"""Steps on several ranks that run together: their job as a file, and the program they run."""

from kernels.ranks.job import JobError, Pieces, RankBatches, RankJob, RankPiece, save_rows

__all__ = ["JobError", "Pieces", "RankBatches", "RankJob", "RankPiece", "save_rows"]
