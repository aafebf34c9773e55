# What all plots share. SVG, drawn in lines and markers that stay apart in grey.
set terminal svg size width,height fixed noenhanced font "Helvetica,14" linewidth 1 background "white"
set encoding utf8
set border 3 linewidth 1 linecolor rgb "#555555"
set tics out nomirror textcolor rgb "#222222"
set style line 100 linewidth 0.6 linecolor rgb "#dddddd"
set grid xtics ytics linestyle 100
set key outside right center vertical Left reverse samplen 3.2 spacing 1.25 width 1 textcolor rgb "#222222"
set xlabel xlabel_text
set ylabel ylabel_text
