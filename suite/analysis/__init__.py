"""From records to rows: statistics, closed budgets, scaling, comparisons."""
